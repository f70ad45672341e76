package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"troupe/leaseactor"
	"troupe/proto"
)

// watchInspector is what /debug/clients asks of the watch room, if the room can tell.
type watchInspector interface {
	// Inspect describes at most so many streams, the furthest behind first, with at most so many watches of each.
	Inspect(ctx context.Context, streamsMax, watchesMax int) ([]proto.StreamInfo, error)
}

// leaseInspector is what it asks of the lease room. It does not wait.
type leaseInspector interface{ Inspect() leaseactor.Inspection }

// errNotInspected is the reason why there is nothing to show.
var errNotInspected = errors.New("the watch room of this member does not describe its streams")

// Inspect asks the watch room.
func (r watchRoom) Inspect(ctx context.Context, streamsMax, watchesMax int) ([]proto.StreamInfo, error) {
	if room, ok := any(r.client).(watchInspector); ok {
		return room.Inspect(ctx, streamsMax, watchesMax)
	}
	return nil, errNotInspected
}

// clientsPicture is what /debug/clients shows: who is connected and what for. Each list is bounded, with the totals
// beside it. The JSON names are stable: fields are added, never renamed.
type clientsPicture struct {
	Time        time.Time        `json:"time"`
	Revision    int64            `json:"revision"`
	Connections connectionsShown `json:"connections"`
	Streams     streamsShown     `json:"watch_streams"`
	Leases      leasesShown      `json:"leases"`
}

type connectionsShown struct {
	Open     int              `json:"open"`
	HalfOpen int              `json:"half_open"`
	Shown    []connectionView `json:"shown"`
}

// connectionView is one connection. Leases are some of those that the client has renewed on it.
type connectionView struct {
	ID          uint64   `json:"id"`
	Remote      string   `json:"remote"`
	AgeSeconds  float64  `json:"age_seconds"`
	Protocol    string   `json:"protocol"`
	Calls       int      `json:"calls"`
	Streams     int      `json:"streams"`
	AnswerBytes int64    `json:"answer_bytes"`
	Leases      []string `json:"leases"`
}

type streamsShown struct {
	Open  int                `json:"open"`
	Error string             `json:"error,omitempty"`
	Shown []clientStreamView `json:"shown"`
}

// clientStreamView is one watch stream. Connection is 0 when it is not known.
type clientStreamView struct {
	Stream      uint64            `json:"stream"`
	Connection  uint64            `json:"connection"`
	Remote      string            `json:"remote"`
	Watches     int               `json:"watches"`
	QueuedBytes int64             `json:"queued_bytes"`
	Resyncs     uint64            `json:"resyncs"`
	Shown       []clientWatchView `json:"shown"`
}

// clientWatchView is one watch. Reading says that it reads history, and Behind how many revisions of it are left; any
// other watch has been told of everything, be its next revision as old as it may: its range is quiet.
type clientWatchView struct {
	ID       int64  `json:"id"`
	Range    string `json:"range"`
	Next     int64  `json:"next_revision"`
	Behind   int64  `json:"behind_revisions"`
	Reading  bool   `json:"reading_history"`
	KeyBytes int    `json:"key_bytes"`
}

// leasesShown is what the lease room tells; all of it is 0 on a member that does not lead.
type leasesShown struct {
	Leases               int     `json:"leases"`
	Overdue              int     `json:"overdue"`
	Queued               int     `json:"queued"`
	RevokesInFlight      int     `json:"revokes_in_flight"`
	OldestOverdueSeconds float64 `json:"oldest_overdue_seconds"`
	Waiting              int     `json:"renewals_waiting"`
}

// clientsLook makes the picture, and shows one to all who look within pictureAgeMin.
type clientsLook struct {
	mu     sync.Mutex
	latest *clientsPicture
	until  time.Time
}

func (s *Server) lookAtClients() *clientsPicture {
	l := &s.debug.clients
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest != nil && time.Now().Before(l.until) {
		return l.latest
	}
	began := time.Now()
	// What is shown to all does not depend on whether the first who asked is still there, only on the pages' life.
	l.latest = s.inspectClients(s.pageLife, began)
	l.until = time.Now().Add(max(pictureAgeMin, pictureRestFactor*time.Since(began)))
	return l.latest
}

func (s *Server) inspectClients(ctx context.Context, now time.Time) *clientsPicture {
	_, edge := s.edgeView()
	p := &clientsPicture{Time: now, Revision: int64(s.cfg.Store.State().Revision)}
	p.Connections = connectionsShown{Open: edge.Connections, HalfOpen: edge.HalfOpen, Shown: []connectionView{}}
	for _, c := range s.Clients(clientsShownMax) {
		v := connectionView{ID: c.ID, Remote: c.Remote, AgeSeconds: now.Sub(c.Since).Seconds(), Protocol: c.Protocol,
			Calls: c.Calls, Streams: c.Streams, AnswerBytes: c.BytesInFlight, Leases: []string{}}
		for _, id := range c.Leases {
			v.Leases = append(v.Leases, strconv.FormatInt(int64(id), 16))
		}
		p.Connections.Shown = append(p.Connections.Shown, v)
	}
	p.Streams = s.inspectStreams(ctx, p.Revision)
	if room, ok := s.cfg.Leases.(leaseInspector); ok {
		i := room.Inspect()
		p.Leases = leasesShown{Leases: i.Leases, Overdue: i.Overdue, Queued: i.Queued, RevokesInFlight: i.RevokesInFlight,
			OldestOverdueSeconds: i.OldestOverdue.Seconds(), Waiting: i.Waiting}
	}
	return p
}

// inspectStreams asks the watch room, which answers within healthTimeout or not at all: a page that shows the rest is
// worth more then than none.
func (s *Server) inspectStreams(ctx context.Context, revision int64) streamsShown {
	out := streamsShown{Open: s.debug.watchers.size(), Shown: []clientStreamView{}}
	room, ok := s.cfg.Watch.(watchInspector)
	if !ok {
		out.Error = errNotInspected.Error()
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	infos, err := room.Inspect(ctx, clientsShownMax, clientWatchesShownMax)
	if err != nil {
		out.Error = err.Error()
	}
	for i := range infos {
		info := &infos[i]
		v := clientStreamView{Stream: info.Stream, Watches: info.Watches, QueuedBytes: info.QueuedBytes,
			Resyncs: info.Resyncs, Shown: []clientWatchView{}}
		if conn := s.debug.watchers.connection(info.Stream); conn != nil {
			v.Connection, v.Remote = conn.id, conn.addr.String()
		}
		for j := range info.Shown {
			w := &info.Shown[j]
			watch := clientWatchView{ID: w.ID, Range: spellRange(w.Key, w.End), Next: int64(w.Next), Reading: w.Behind,
				KeyBytes: len(w.Key) + len(w.End)}
			if w.Behind {
				watch.Behind = max(revision-int64(w.Next)+1, 0)
			}
			v.Shown = append(v.Shown, watch)
		}
		out.Shown = append(out.Shown, v)
	}
	slices.SortStableFunc(out.Shown, func(a, b clientStreamView) int {
		return cmp.Or(-boolOrder(a.reading(), b.reading()), cmp.Compare(b.QueuedBytes, a.QueuedBytes))
	})
	return out
}

// reading reports whether a watch of the stream reads history.
func (v *clientStreamView) reading() bool {
	return slices.ContainsFunc(v.Shown, func(w clientWatchView) bool { return w.Reading })
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// spellRange writes a range of keys for people, cut where it is long: keys are what clients chose, and may be anything.
func spellRange(key, end []byte) string {
	switch {
	case len(end) == 0:
		return spellKey(key)
	case string(end) == "\x00":
		return "from " + spellKey(key)
	case string(end) == string(prefixEnd(key)):
		return spellKey(key) + "*"
	default:
		return spellKey(key) + " to " + spellKey(end)
	}
}

// prefixEnd is the end of the range of all keys with that prefix.
func prefixEnd(key []byte) []byte {
	end := slices.Clone(key)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0}
}

func spellKey(key []byte) string {
	cut := ""
	if len(key) > loggedKeyBytesMax {
		key, cut = key[:loggedKeyBytesMax], "…"
	}
	return spellBinary(key) + cut
}

// spellBinary writes bytes as they are if they can be read, else in quotes with escapes.
func spellBinary(b []byte) string {
	text := string(b)
	if !utf8.ValidString(text) || text == "" || slices.ContainsFunc([]rune(text), func(r rune) bool {
		return !unicode.IsPrint(r)
	}) {
		text = strconv.QuoteToASCII(text)
	}
	return text
}

// watchers remembers the connection of each watch stream, so that the page can say whose it is.
type watchers struct {
	mu   sync.Mutex
	open map[uint64]*connection
}

// note enters a stream until the result is called. A room that does not number its streams is not asked about them.
func (w *watchers) note(ctx context.Context, stream WatchStream) (remove func()) {
	numbered, ok := stream.(interface{ Number() uint64 })
	if !ok {
		return func() {}
	}
	number := numbered.Number()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = make(map[uint64]*connection)
	}
	w.open[number] = connectionOf(ctx)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, number)
	}
}

func (w *watchers) connection(number uint64) *connection {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[number]
}

func (w *watchers) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}

// serveClients shows who is connected, in the same three forms as the actors.
func (s *Server) serveClients(w http.ResponseWriter, r *http.Request) {
	p := s.lookAtClients()
	w.Header().Set("Cache-Control", "no-store")
	switch formOf(r) {
	case formJSON:
		serveJSON(w, p)
	case formHTML:
		servePage(w, clientsPage, p)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		writeClients(w, p)
	}
}

func writeClients(w io.Writer, p *clientsPicture) {
	fmt.Fprintf(w, "connections: %d open, %d half open; watch streams: %d; leases: %d, overdue %d\n\n",
		p.Connections.Open, p.Connections.HalfOpen, p.Streams.Open, p.Leases.Leases, p.Leases.Overdue)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "connection\tclient\tage\tprotocol\tcalls\tstreams\tanswer bytes\tleases")
	for i := range p.Connections.Shown {
		c := &p.Connections.Shown[i]
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", c.ID, c.Remote, spell(c.AgeSeconds), c.Protocol, c.Calls,
			c.Streams, c.AnswerBytes, len(c.Leases))
	}
	fmt.Fprintln(table, "\nstream\tclient\twatches\tqueued bytes\tresyncs\twatch\trange\tnext\tbehind\t")
	for i := range p.Streams.Shown {
		v := &p.Streams.Shown[i]
		fmt.Fprintf(table, "%d\t%s\t%d\t%d\t%d\t\t\t\t\n", v.Stream, v.Remote, v.Watches, v.QueuedBytes, v.Resyncs)
		for j := range v.Shown {
			o := &v.Shown[j]
			reading := ""
			if o.Reading {
				reading = "reads history"
			}
			fmt.Fprintf(table, "\t\t\t\t\t%d\t%s\t%d\t%d\t%s\n", o.ID, o.Range, o.Next, o.Behind, reading)
		}
	}
	_ = table.Flush()
	if p.Streams.Error != "" {
		fmt.Fprintf(w, "\nwatch streams: %s\n", p.Streams.Error)
	}
}
