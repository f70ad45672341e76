package etcdctl

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// The list of everything that is replaced before two outputs are compared. Whatever is not in this file must be equal.
//
//	ids       cluster, member and lease ids, in decimal and in hex: they are hashes of URLs, or drawn by chance
//	places    the server's own addresses
//	raft      term and indexes: how many entries a server needs for its own business is its own business
//	time      durations, times of day, and remaining seconds of a lease
//	sizes     of the database file
//	client    pointers and times in the warnings that the client library itself logs
var patterns = []struct {
	pattern *regexp.Regexp
	with    string
}{
	// raft, in JSON and fields; the table and simple forms of "endpoint status" are handled by column below
	{regexp.MustCompile(`"(raft_term|raftTerm)":\d+`), `"$1":<term>`},
	{regexp.MustCompile(`"(raftIndex|raftAppliedIndex)":\d+`), `"$1":<index>`},
	{regexp.MustCompile(`"(RaftTerm)" : \d+`), `"$1" : <term>`},
	{regexp.MustCompile(`"(RaftIndex|RaftAppliedIndex)" : \d+`), `"$1" : <index>`},
	// leases that lock and elect grant themselves
	{regexp.MustCompile(`(the-lock|the-election)/[0-9a-f]+`), `$1/<lease>`},
	// time
	{regexp.MustCompile(`took = [0-9.]+(ns|µs|ms|s)`), `took = <time>`},
	{regexp.MustCompile(`"took":"[^"]+"`), `"took":"<time>"`},
	{regexp.MustCompile(`"Took" : [0-9.a-zµ]+`), `"Took" : <time>`},
	{regexp.MustCompile(`remaining\(\d+s\)`), `remaining(<seconds>)`},
	{regexp.MustCompile(`"ttl":\d+,"granted-ttl"`), `"ttl":<seconds>,"granted-ttl"`},
	{regexp.MustCompile(`"TTL" : \d+\n"GrantedTTL"`), "\"TTL\" : <seconds>\n\"GrantedTTL\""},
	// ids in hex are padded to their greatest length with spaces
	{regexp.MustCompile(`(Member|cluster) {2,}<`), `$1 <`},
	// sizes
	{regexp.MustCompile(`"(dbSize|dbSizeInUse)":\d+`), `"$1":<size>`},
	{regexp.MustCompile(`"(DBSize|DBSizeInUse)" : \d+`), `"$1" : <size>`},
	// client
	{regexp.MustCompile(`"ts":"[^"]+"`), `"ts":"<time>"`},
	{regexp.MustCompile(`etcd-endpoints://0x[0-9a-f]+`), `etcd-endpoints://<pointer>`},
	{regexp.MustCompile(`LocalAddr: '[^']+'`), `LocalAddr: '<address>'`},
}

// statusColumns are the columns of "endpoint status" in the simple and table form that differ: heads in the table,
// positions in the simple form. Widths follow from the values, so cells are trimmed.
var statusColumns = map[string]int{
	"ENDPOINT": 0, "ID": 1, "DB SIZE": 4, "IN USE": 5, "PERCENTAGE NOT IN USE": 6,
	"RAFT TERM": 10, "RAFT INDEX": 11, "RAFT APPLIED INDEX": 12,
	"TOOK": -1, // of "endpoint health", which has no such simple form
}

// names are the replacements for one server: its ids and addresses, and the leases granted so far.
type names struct {
	server *harness.Server
	self   string      // the server's own id, in hex
	texts  [][2]string // text, name
	leases []string    // hex, as etcdctl prints them
	added  []string    // members that were added, in hex
}

func newNames(t *testing.T, s *harness.Server) *names {
	t.Helper()
	ctx := harness.Context(t, harnessLimit)
	status, err := pb.NewMaintenanceClient(s.Conn(t)).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		t.Fatalf("status of %s: %v", s.Kind, err)
	}
	n := &names{server: s, self: strconv.FormatUint(status.Header.MemberId, 16)}
	for _, id := range []struct {
		id   uint64
		name string
	}{{status.Header.ClusterId, "<cluster>"}, {status.Header.MemberId, "<member>"}} {
		n.texts = append(n.texts,
			[2]string{strconv.FormatUint(id.id, 10), id.name}, [2]string{strconv.FormatUint(id.id, 16), id.name})
	}
	n.texts = append(n.texts, [2]string{s.Endpoint(), "<client address>"},
		[2]string{strings.TrimPrefix(s.PeerURL, "http://"), "<peer address>"})
	return n
}

// reaches waits for a storage version, which follows the cluster version.
func (n *names) reaches(t *testing.T, version string) {
	t.Helper()
	harness.Eventually(t, harnessLimit, n.server.Kind.String()+" reaches "+version, func() error {
		r, err := pb.NewMaintenanceClient(n.server.Conn(t)).Status(harness.Context(t, harnessLimit), &pb.StatusRequest{})
		if err == nil && r.StorageVersion != version {
			err = fmt.Errorf("it is at %s", r.StorageVersion)
		}
		return err
	})
}

// addLease gives the lease a name by its order, so that the same lease has the same name on both servers.
func (n *names) addLease(hex string) {
	name := fmt.Sprintf("<lease %d>", len(n.leases))
	n.leases = append(n.leases, hex)
	id, err := strconv.ParseInt(hex, 16, 64)
	if err != nil {
		return
	}
	for _, text := range []string{fmt.Sprintf("%016x", id), strconv.FormatInt(id, 16), strconv.FormatInt(id, 10)} {
		n.texts = append(n.texts, [2]string{text, name})
	}
}

// addMember gives a member that was added a name by its order.
func (n *names) addMember(hex string) {
	name := fmt.Sprintf("<added %d>", len(n.added))
	n.added = append(n.added, hex)
	if id, err := strconv.ParseUint(hex, 16, 64); err == nil {
		n.texts = append(n.texts, [2]string{hex, name}, [2]string{strconv.FormatUint(id, 10), name})
	}
}

// memberEntry is one member in the JSON form.
var memberEntry = regexp.MustCompile(`\{"ID":[^}]*\}`)

// normaliseMembers brings the members of an output into the order of their names: lines of the simple and the table
// form, whose widths follow from the values, entries of the JSON form, parts of ETCD_INITIAL_CLUSTER.
func normaliseMembers(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if list, ok := strings.CutPrefix(line, "ETCD_INITIAL_CLUSTER="); ok {
			parts := strings.Split(strings.Trim(list, `"`), ",")
			slices.Sort(parts)
			lines[i] = "ETCD_INITIAL_CLUSTER=" + strings.Join(parts, ",")
		}
		if strings.ContainsAny(line, "|│") {
			lines[i] = trimCells(strings.FieldsFunc(line, isBar), nil)
		}
		if strings.ContainsAny(line, "+┌├└") && !strings.ContainsAny(line, "<") {
			lines[i] = "<frame>"
		}
		entries := memberEntry.FindAllString(line, -1)
		if len(entries) > 1 {
			slices.Sort(entries)
			lines[i] = memberEntry.ReplaceAllString(line, "<member entry>") + strings.Join(entries, ",")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// fill puts the server's own values in the place of names in a command's arguments.
func (n *names) fill(text string) string {
	for i, hex := range n.leases {
		text = strings.ReplaceAll(text, fmt.Sprintf("<lease %d>", i), hex)
	}
	for i, hex := range n.added {
		text = strings.ReplaceAll(text, fmt.Sprintf("<added %d>", i), hex)
	}
	text = strings.ReplaceAll(text, "<self>", n.self)
	return text
}

// normalise replaces everything on the list in an output.
func (n *names) normalise(text string) string {
	for _, pair := range n.texts {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	for _, p := range patterns {
		text = p.pattern.ReplaceAllString(text, p.with)
	}
	return text
}

// normaliseStatus replaces the columns of statusColumns in the simple and table forms of "endpoint status". Column
// widths follow from the values, so frame lines are cut to one character and cells are trimmed.
func normaliseStatus(text string) string {
	var out []string
	var positions map[int]bool
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "+") || strings.HasPrefix(line, "┌") || strings.HasPrefix(line, "├") ||
			strings.HasPrefix(line, "└"):
			out = append(out, "<frame>")
		case strings.ContainsAny(line, "|│"):
			cells := strings.FieldsFunc(line, isBar)
			if positions == nil {
				positions = map[int]bool{}
				for i, cell := range cells {
					if _, ok := statusColumns[strings.TrimSpace(cell)]; ok {
						positions[i] = true
					}
				}
				out = append(out, trimCells(cells, nil))
				continue
			}
			out = append(out, trimCells(cells, positions))
		case strings.Count(line, ", ") > 8:
			positions := map[int]bool{}
			for _, i := range statusColumns {
				positions[i] = true
			}
			out = append(out, trimCells(strings.Split(line, ", "), positions))
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func isBar(r rune) bool { return r == '|' || r == '│' }

func trimCells(cells []string, replaced map[int]bool) string {
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
		if replaced[i] {
			cells[i] = "<differs>"
		}
	}
	return strings.Join(cells, " | ")
}
