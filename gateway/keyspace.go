package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"

	"troupe/proto"
	"troupe/storeactor"
)

// Keyspaces is what the report on the keys needs of the store; a Store without it has none.
type Keyspaces interface {
	// Keyspace adds up which prefixes take the space, in the caller's goroutine, without holding anybody up.
	Keyspace(ctx context.Context, q storeactor.KeyspaceQuery) (storeactor.Keyspace, error)
}

// keyspaceTurns lets one report be made at a time, so that they take a quarter of one processor together.
type keyspaceTurns struct {
	turn    chan struct{} // room for one
	waiting atomic.Int64
}

// take waits for the turn; done gives it back.
func (k *keyspaceTurns) take(ctx context.Context) (done func(), err error) {
	defer k.waiting.Add(-1)
	if k.waiting.Add(1) > keyspaceWaitersMax {
		return nil, ErrTooManyReports
	}
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// reportKeyspace makes a report. Zeroes in the query mean the defaults.
func (s *Server) reportKeyspace(ctx context.Context, q storeactor.KeyspaceQuery) (*proto.KeyspaceReport, error) {
	store, ok := s.cfg.Store.(Keyspaces)
	if !ok {
		return nil, ErrNotImplemented
	}
	done, err := s.keyspace.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	q.Depth = min(cmp.Or(max(q.Depth, 0), keyspaceDepthDefault), storeactor.KeyspaceDepthMax)
	q.Top = min(cmp.Or(max(q.Top, 0), keyspaceTopDefault), storeactor.KeyspaceTopMax)
	began := time.Now()
	k, err := store.Keyspace(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &proto.KeyspaceReport{Depth: int32(q.Depth), TookSeconds: time.Since(began).Seconds(),
		FromRevision: int64(k.From), ThroughRevision: int64(k.Through), CompactRevision: int64(k.Compacted),
		DbSize: k.Sizes.Total, DbSizeInUse: k.Sizes.InUse, Quota: s.cfg.quotaBytes(),
		Others: useMessage(&k.Others), OtherPrefixes: k.OtherPrefixes, Total: useMessage(&k.Total)}
	for i := range k.Prefixes {
		out.Prefixes = append(out.Prefixes, useMessage(&k.Prefixes[i]))
	}
	return out, nil
}

func useMessage(u *storeactor.PrefixUse) *proto.KeyspacePrefix {
	return &proto.KeyspacePrefix{Prefix: u.Prefix, Cut: u.Cut, Keys: u.Keys, LiveBytes: u.LiveBytes,
		Revisions: u.Revisions, Bytes: u.Bytes}
}

// introspectKeyspace answers Introspect.Keyspace.
func (s *Server) introspectKeyspace(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (
	out any, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, s.panicked("Introspect.Keyspace", r)
		}
	}()
	in := new(proto.KeyspaceRequest)
	if err := decode(in); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.pageLife, cancel)()
	report, err := s.reportKeyspace(ctx,
		storeactor.KeyspaceQuery{Depth: int(in.GetDepth()), Top: int(in.GetTop()), Within: in.GetWithin()})
	if err != nil {
		return nil, wireError(err)
	}
	return report, nil
}

// keyspaceAsked reads what ?depth=, ?top=, ?within= and ?within_base64= ask for.
func keyspaceAsked(r *http.Request) (storeactor.KeyspaceQuery, error) {
	query := r.URL.Query()
	q := storeactor.KeyspaceQuery{Within: []byte(query.Get("within"))}
	if text := query.Get("within_base64"); text != "" {
		if len(q.Within) > 0 {
			return q, errors.New("within= and within_base64=: give one of them")
		}
		var err error
		if q.Within, err = base64Asked(text); err != nil {
			return q, fmt.Errorf("within_base64=%.20q: give base64, such as prefix_base64 in the JSON: %w", text, err)
		}
	}
	for _, one := range []struct {
		name string
		to   *int
		most int
	}{{"depth", &q.Depth, storeactor.KeyspaceDepthMax}, {"top", &q.Top, storeactor.KeyspaceTopMax}} {
		text := query.Get(one.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > one.most {
			return q, fmt.Errorf("%s=%.20q: give a number from 1 to %d", one.name, text, one.most)
		}
		*one.to = n
	}
	return q, nil
}

// base64Asked reads base64 out of a URL, in either alphabet, padded or not. A '+' that was not escaped has become a
// space there, and is meant: base64 has none.
func base64Asked(text string) ([]byte, error) {
	text = strings.NewReplacer(" ", "+", "-", "+", "_", "/").Replace(text)
	return base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
}

// serveKeyspace shows which prefixes of keys take the space, as a plain table or, with ?format=json, as JSON.
func (s *Server) serveKeyspace(w http.ResponseWriter, r *http.Request) {
	q, err := keyspaceAsked(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	report, err := s.reportKeyspace(r.Context(), q)
	switch {
	case errors.Is(err, ErrTooManyReports):
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if formOf(r) == formJSON {
		serveJSON(w, viewKeyspace(report))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	writeKeyspace(w, report)
}

// keyspaceView is a report as JSON; TestKeyspace_JSONAndMessageAreTheSame compares it with the message.
type keyspaceView struct {
	Depth           int32     `json:"depth"`
	TookSeconds     float64   `json:"took_seconds"`
	FromRevision    int64     `json:"from_revision"`
	ThroughRevision int64     `json:"through_revision"`
	CompactRevision int64     `json:"compact_revision"`
	DbSize          int64     `json:"db_size"`
	DbSizeInUse     int64     `json:"db_size_in_use"`
	Quota           int64     `json:"quota"`
	Prefixes        []useView `json:"prefixes"`
	Others          useView   `json:"others"`
	OtherPrefixes   int64     `json:"other_prefixes"`
	Total           useView   `json:"total"`
}

// useView has the prefix twice: as it is printed, which is ambiguous when it has escapes or quotes in it, and its
// bytes, which encoding/json writes as base64.
type useView struct {
	Prefix    string `json:"prefix"`
	Bytes64   []byte `json:"prefix_base64"`
	Cut       bool   `json:"cut"`
	Keys      int64  `json:"keys"`
	LiveBytes int64  `json:"live_bytes"`
	Revisions int64  `json:"revisions"`
	Bytes     int64  `json:"bytes"`
}

func viewKeyspace(r *proto.KeyspaceReport) *keyspaceView {
	v := &keyspaceView{Depth: r.Depth, TookSeconds: r.TookSeconds, FromRevision: r.FromRevision,
		ThroughRevision: r.ThroughRevision, CompactRevision: r.CompactRevision, DbSize: r.DbSize,
		DbSizeInUse: r.DbSizeInUse, Quota: r.Quota, Prefixes: []useView{}, Others: viewUse(r.Others),
		OtherPrefixes: r.OtherPrefixes, Total: viewUse(r.Total)}
	for _, u := range r.Prefixes {
		v.Prefixes = append(v.Prefixes, viewUse(u))
	}
	return v
}

func viewUse(u *proto.KeyspacePrefix) useView {
	v := useView{Bytes64: append([]byte{}, u.Prefix...), Cut: u.Cut, Keys: u.Keys, LiveBytes: u.LiveBytes,
		Revisions: u.Revisions, Bytes: u.Bytes}
	if len(u.Prefix) > 0 {
		v.Prefix = spellBinary(u.Prefix)
	}
	return v
}

// writeKeyspace writes the table for a terminal.
func writeKeyspace(w io.Writer, r *proto.KeyspaceReport) {
	quota := "none"
	if r.Quota > 0 {
		quota = spellBytes(r.Quota)
	}
	fmt.Fprintf(w, "database %s, in use %s, quota %s; compacted at %d; revisions %d to %d, in %s\n"+
		"bytes are those of the records in the file; what a row has above its live bytes a compaction can free\n\n",
		spellBytes(r.DbSize), spellBytes(r.DbSizeInUse), quota, r.CompactRevision, r.FromRevision, r.ThroughRevision,
		spell(r.TookSeconds))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "bytes\tshare\tlive bytes\tkeys\trevisions\t  prefix")
	row := func(u *proto.KeyspacePrefix, name string) {
		fmt.Fprintf(table, "%d\t%.1f %%\t%d\t%d\t%d\t  %s\n", u.Bytes, 100*float64(u.Bytes)/float64(max(r.Total.Bytes, 1)),
			u.LiveBytes, u.Keys, u.Revisions, name)
	}
	for _, u := range r.Prefixes {
		name := "(keys without a /)"
		if len(u.Prefix) > 0 {
			name = spellBinary(u.Prefix)
		}
		if u.Cut {
			name += "…"
		}
		row(u, name)
	}
	if r.OtherPrefixes > 0 {
		row(r.Others, fmt.Sprintf("(%d other prefixes)", r.OtherPrefixes))
	}
	row(r.Total, "(all)")
	_ = table.Flush()
}
