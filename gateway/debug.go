package gateway

import (
	"cmp"
	"encoding/json"
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"troupe/actors"
)

// clientMux serves HTTP/1.1 on the client port: health, metrics, the JSON gateway and, unless they have a port of their
// own, the debug pages.
func (s *Server) clientMux() (http.Handler, error) {
	mux := http.NewServeMux()
	s.registerMetrics(mux)
	mux.HandleFunc("/version", s.serveVersion)
	if !s.cfg.DebugElsewhere {
		s.registerDebug(mux, false)
	}
	if !s.cfg.NoJSON {
		var err error
		if s.json, err = newJSONGateway(s); err != nil {
			return nil, err
		}
		mux.Handle(jsonPrefix, s.json)
	}
	return rewriteOld(s.access.guardHost(s.access.allowOrigins(mux))), nil
}

// metricsMux serves HTTP/1.1 on a metrics port, which more may reach than the others: metrics and health, nothing else.
func (s *Server) metricsMux() http.Handler {
	mux := http.NewServeMux()
	s.registerMetrics(mux)
	return mux
}

// debugMux serves HTTP/1.1 on a debug port.
func (s *Server) debugMux() http.Handler {
	mux := http.NewServeMux()
	s.registerDebug(mux, true)
	mux.Handle("/{$}", http.RedirectHandler("/debug/actors", http.StatusFound))
	return s.access.guardHost(mux)
}

func (s *Server) registerMetrics(mux *http.ServeMux) {
	mux.Handle("/metrics", promhttp.InstrumentMetricHandler(s.cfg.Registry,
		promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})))
	s.registerProbes(mux)
}

// registerDebug adds the debug pages. own says that the port is theirs alone.
func (s *Server) registerDebug(mux *http.ServeMux, own bool) {
	mux.Handle("/debug/actors", onlyGet(http.HandlerFunc(s.serveActors)))
	mux.Handle("/debug/clients", onlyGet(http.HandlerFunc(s.serveClients)))
	mux.Handle("/debug/keyspace", onlyGet(http.HandlerFunc(s.serveKeyspace)))
	mux.Handle("/debug/vars", expvar.Handler())
	if s.cfg.LogLevel != nil {
		mux.Handle("/debug/loglevel", s.serveLogLevel(own))
	}
	if s.cfg.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
}

// The forms in which a debug page can be had.
const (
	formHTML = "html"
	formText = "text"
	formJSON = "json"
)

// formOf decides the form: what ?format= asks for, else HTML for browsers and text for everybody else, so that curl
// shows something to read.
func formOf(r *http.Request) string {
	switch form := r.URL.Query().Get("format"); form {
	case formHTML, formText, formJSON:
		return form
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		return formHTML
	}
	return formText
}

// selected reads what ?kind=, ?top= and ?limit= ask for.
func selected(r *http.Request) selection {
	query := r.URL.Query()
	want := selection{kind: query.Get("kind"), top: pictureActorsShown, limit: pictureActorsMax}
	if want.kind != "" {
		want.top = pictureActorsPerKind
	}
	want.top = number(query.Get("top"), want.top)
	want.limit = number(query.Get("limit"), want.limit)
	return want
}

// number reads a count, or gives the default for what is none.
func number(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n
	}
	return otherwise
}

// serveActors shows the actors: as a page for a browser, as text for a terminal, as JSON with ?format=json. ?kind=
// shows one kind with more of its actors, ?top= so many actors of each kind, ?limit= so many together.
func (s *Server) serveActors(w http.ResponseWriter, r *http.Request) {
	v := s.look(selected(r))
	w.Header().Set("Cache-Control", "no-store")
	switch formOf(r) {
	case formJSON:
		serveJSON(w, v)
	case formHTML:
		servePage(w, actorsPage, v)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		writeActors(w, v)
	}
}

func serveJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(v)
}

// writeActors writes a table for a terminal, a line for each lane, and below it the kinds of which not all are shown.
func writeActors(w io.Writer, v *troupeView) {
	width := len("actor")
	for i := range v.Actors {
		width = max(width, len(v.Actors[i].label()))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%-*s\tlane\tpolicy\tbusy\tdepth\tbound\thigh\tbytes\tbound\trejected\tdropped\tcoalesced\t"+
		"resynced\twhispered\thandled\t/s\twait p50\tp99\twork p50\tp99\trestarts\tbusy with\t\n", width, "actor")
	shown := map[string]int{}
	for i := range v.Actors {
		a := &v.Actors[i]
		shown[a.Kind]++
		for j := range a.Lanes {
			l := &a.Lanes[j]
			fmt.Fprintf(table, "%-*s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t\n",
				width, a.label(), l.Lane, l.Policy, spell(a.BusySeconds), l.Depth, l.Bound, l.HighWater, l.Bytes, l.BytesBound,
				l.Rejected, l.Dropped, l.Coalesced, l.Resynced, l.Whispered, a.Handled, perSecond(a.Rate), spell(l.Wait.P50),
				spell(l.Wait.P99), spell(a.Work.P50), spell(a.Work.P99), a.Restarts, a.BusyWith)
		}
	}
	_ = table.Flush()
	for i := range v.Kinds {
		k := &v.Kinds[i]
		if k.Actors <= shown[k.Kind] {
			continue
		}
		depth, deepest := 0, 0
		for j := range k.Lanes {
			depth, deepest = depth+k.Lanes[j].Depth, max(deepest, k.Lanes[j].DepthMax)
		}
		fmt.Fprintf(w, "%s: %d actors, %d shown; together depth %d, the deepest %d, %d full, %d busy, handled %d\n",
			k.Kind, k.Actors, shown[k.Kind], depth, deepest, k.Full, k.Busy, k.Handled)
	}
}

// label is the actor's name, with its condition unless that is calm.
func (a *actorView) label() string {
	if a.rank == actors.Calm {
		return a.Name
	}
	return a.Name + " (" + a.Condition + ")"
}

// spell writes a time for people; a dash for none.
func spell(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(cmp.Or(d/100, 1))
	}
	return d.String()
}

// perSecond writes a rate; a dash when it is not known.
func perSecond(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return strconv.FormatFloat(*rate, 'f', 0, 64)
}
