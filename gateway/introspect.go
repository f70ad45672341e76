package gateway

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"troupe/actors"
)

// troupeView is what /debug/actors, its JSON and the Introspect service show: one picture of the actors, with rates
// since the picture before. The JSON names are stable: fields are added, never renamed. It is immutable.
type troupeView struct {
	// Time is when the picture was taken, PictureSeconds how long that took.
	Time           time.Time `json:"time"`
	PictureSeconds float64   `json:"picture_seconds"`
	// IntervalSeconds is the time over which the rates are taken; 0 when nobody has looked lately: then they are null.
	IntervalSeconds float64 `json:"interval_seconds"`
	// RecentSeconds is the time over which recent quantiles are taken; 0 at the first look: then there are none.
	RecentSeconds float64     `json:"recent_seconds"`
	Member        memberView  `json:"member"`
	Gateway       gatewayView `json:"gateway"`
	Totals        totalsView  `json:"totals"`
	// Kinds are sorted by name.
	Kinds []kindView `json:"kinds"`
	// Actors begin with the one that needs a look most; of each kind only the few that matter most are there.
	Actors []actorView `json:"actors"`
}

// memberView says whose actors these are.
type memberView struct {
	ID        string `json:"id"`
	ClusterID string `json:"cluster_id"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Leader    bool   `json:"leader"`
	Ready     bool   `json:"ready"`
	Term      uint64 `json:"term"`
	Revision  int64  `json:"revision"`
	Applied   uint64 `json:"applied_index"`
}

// gatewayView is the edge, which is no actor: what comes in and what waits to go out.
type gatewayView struct {
	Connections      int   `json:"connections"`
	HalfOpen         int   `json:"half_open_connections"`
	Requests         int64 `json:"requests_in_flight"`
	AnswerBytes      int64 `json:"answer_bytes"`
	AnswerBytesBound int64 `json:"answer_bytes_bound"`
	// Gates are the bounds on what clients may have open, each kind for itself.
	Gates []gateView `json:"gates"`
}

// gateView is one of those bounds; what finds no place is refused.
type gateView struct {
	Name  string `json:"name"`
	Open  int64  `json:"open"`
	Bound int64  `json:"bound"`
}

// totalsView counts the actors by how they are. Full, Stuck and Strained are of those in Actors.
type totalsView struct {
	Actors   int `json:"actors"`
	Full     int `json:"full"`
	Stuck    int `json:"stuck"`
	Strained int `json:"strained"`
}

// timesView is a distribution of durations, since the start and over the recent time, from powers of two: each quantile
// is an upper bound, at most twice the true value.
type timesView struct {
	Count       uint64  `json:"count"`
	P50         float64 `json:"p50_seconds"`
	P99         float64 `json:"p99_seconds"`
	RecentCount uint64  `json:"recent_count"`
	RecentP50   float64 `json:"recent_p50_seconds"`
	RecentP99   float64 `json:"recent_p99_seconds"`
}

// laneView is one lane of one actor, or the sums of the lanes of a kind.
type laneView struct {
	Lane       string  `json:"lane"`
	Policy     string  `json:"policy"`
	Depth      int     `json:"depth"`
	Bound      int     `json:"bound"`
	Bytes      int64   `json:"bytes"`
	BytesBound int64   `json:"bytes_bound"`
	Fill       float64 `json:"fill"`
	HighWater  int     `json:"high_water"`
	// The counters since the start, as in actors.LaneStats.
	Admitted  uint64 `json:"admitted"`
	Rejected  uint64 `json:"rejected"`
	Dropped   uint64 `json:"dropped"`
	Coalesced uint64 `json:"coalesced"`
	Resynced  uint64 `json:"resynced"`
	Whispered uint64 `json:"whispered"`
	Aborted   uint64 `json:"aborted"`
	// Overflowed is how many messages a second were rejected, dropped or replaced by a marker since the last picture.
	Overflowed *float64  `json:"overflowed_per_second"`
	Wait       timesView `json:"wait"`
}

// actorView is one actor.
type actorView struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Room string `json:"room"`
	// Condition is full, stuck, strained or calm; full also when messages were refused since the last picture.
	Condition   string     `json:"condition"`
	Fill        float64    `json:"fill"`
	BusySeconds float64    `json:"busy_seconds"`
	BusyWith    string     `json:"busy_with"`
	Handled     uint64     `json:"handled"`
	Rate        *float64   `json:"handled_per_second"`
	Turns       uint64     `json:"turns"`
	Ticks       int        `json:"ticks_waiting"`
	Restarts    uint64     `json:"restarts"`
	Retiring    bool       `json:"retiring"`
	Pinned      bool       `json:"pinned"`
	OnPanic     string     `json:"on_panic"`
	Work        timesView  `json:"work"`
	Lanes       []laneView `json:"lanes"`

	rank actors.Condition
}

// kindView is the sum over the actors of one kind. Depth and bytes of its lanes are sums, bounds those of one mailbox,
// and Fill that of the fullest.
type kindView struct {
	Kind      string `json:"kind"`
	Room      string `json:"room"`
	Condition string `json:"condition"`
	Actors    int    `json:"actors"`
	Busy      int    `json:"busy"`
	Full      int    `json:"full"`
	// BusySeconds and BusyWith are those of the oldest turn.
	BusySeconds float64        `json:"busy_seconds"`
	BusyWith    string         `json:"busy_with"`
	Handled     uint64         `json:"handled"`
	Rate        *float64       `json:"handled_per_second"`
	Turns       uint64         `json:"turns"`
	Restarts    uint64         `json:"restarts"`
	Work        timesView      `json:"work"`
	Lanes       []kindLaneView `json:"lanes"`
}

// kindLaneView adds what waits in the fullest mailbox of the kind.
type kindLaneView struct {
	laneView
	DepthMax int   `json:"depth_max"`
	BytesMax int64 `json:"bytes_max"`
}

// roomOf tells the room of a kind: the first part of its path, and the backend lives in the store's.
func roomOf(kind string) string {
	room, _, _ := strings.Cut(kind, "/")
	if room == "backend" {
		return "store"
	}
	return room
}

// pictures takes pictures and shares each among all who look at that time. Looking costs time proportional to the
// number of actors, so that a picture which took long is shown for long: at most one part in pictureRestFactor of one
// processor goes into it, however many look and however many actors there are.
type pictures struct {
	take func() *actors.Picture
	edge func() (memberView, gatewayView)

	mu     sync.Mutex
	latest *troupeView
	taken  time.Time
	until  time.Time
	before counted
	// older and newer are the counters of two pictures that are recentSpan apart or more; recent quantiles are taken since
	// the older one, or since the newer while that is the only one.
	older, newer counted
}

// counted are the counters of a picture, by actor and by kind.
type counted struct {
	at     time.Time
	actors map[string]counters
	kinds  map[string]counters
}

// recent gives the counters since which recent quantiles are taken.
func (p *pictures) recent() counted {
	if p.older.actors != nil {
		return p.older
	}
	return p.newer
}

type counters struct {
	handled  uint64
	overflow [2]uint64 // by position of the lane
	work     actors.Histogram
	wait     [2]actors.Histogram
}

// view gives the latest picture, or takes a new one when that has been shown for long enough.
func (p *pictures) view() *troupeView {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.latest != nil && now.Before(p.until) {
		return p.latest
	}
	picture := p.take()
	interval := now.Sub(p.taken)
	if p.latest == nil || interval > rateIntervalMax {
		interval = 0
	}
	v := &troupeView{Time: picture.At, PictureSeconds: picture.Took.Seconds(), IntervalSeconds: interval.Seconds()}
	v.Member, v.Gateway = p.edge()
	rates := rater{before: p.before, recent: p.recent(), seconds: interval.Seconds(), now: picture.At,
		after: counted{at: now, actors: map[string]counters{}, kinds: map[string]counters{}}}
	if rates.recent.actors != nil {
		v.RecentSeconds = now.Sub(rates.recent.at).Seconds()
	}
	for i := range picture.Kinds {
		v.Totals.Actors += picture.Kinds[i].Living
		v.Kinds = append(v.Kinds, rates.kind(&picture.Kinds[i]))
	}
	for i := range picture.Actors {
		v.Actors = append(v.Actors, rates.actor(&picture.Actors[i]))
	}
	slices.SortStableFunc(v.Actors, func(a, b actorView) int { return cmp.Compare(b.rank, a.rank) })
	v.Totals.count(v.Actors)
	p.before, p.latest, p.taken = rates.after, v, now
	if p.newer.actors == nil || now.Sub(p.newer.at) >= recentSpan {
		p.older, p.newer = p.newer, rates.after
	}
	p.until = time.Now().Add(max(pictureAgeMin, pictureRestFactor*picture.Took))
	return v
}

func (t *totalsView) count(all []actorView) {
	for i := range all {
		switch all[i].rank {
		case actors.Full:
			t.Full++
		case actors.Stuck:
			t.Stuck++
		case actors.Strained:
			t.Strained++
		}
	}
}

// rater turns statistics into views, with rates since the counters before.
type rater struct {
	before, recent, after counted
	seconds               float64
	now                   time.Time
}

// rate is nil when there is nothing to compare with: the first look, or an actor that has begun anew.
func (r *rater) rate(before, after uint64, known bool) *float64 {
	if r.seconds == 0 || !known || after < before {
		return nil
	}
	rate := float64(after-before) / r.seconds
	return &rate
}

func (r *rater) age(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(r.now.Sub(since).Seconds(), 0)
}

func (r *rater) actor(s *actors.Stats) actorView {
	before, known := r.before.actors[s.Name]
	v := actorView{Name: s.Name, Kind: s.Kind, Room: roomOf(s.Kind), Fill: s.Fill(), BusySeconds: r.age(s.BusySince),
		BusyWith: s.BusyWith, Handled: s.Handled, Rate: r.rate(before.handled, s.Handled, known), Turns: s.Turns,
		Ticks: s.Ticks, Restarts: s.Restarts, Retiring: s.Retiring, Pinned: s.Pinned, OnPanic: s.OnPanic.String(),
		rank: s.Condition(r.now)}
	recent, seen := r.recent.actors[s.Name]
	v.Work = times(&s.Work, &recent.work, seen)
	after := counters{handled: s.Handled, work: s.Work}
	for i := range s.Lanes {
		l := r.lane(&s.Lanes[i], before.overflow[i], known)
		l.Wait = times(&s.Lanes[i].Wait, &recent.wait[i], seen)
		after.wait[i] = s.Lanes[i].Wait
		after.overflow[i] = overflow(&s.Lanes[i])
		v.rank = max(v.rank, strain(&l))
		v.Lanes = append(v.Lanes, l)
	}
	v.Condition = v.rank.String()
	r.after.actors[s.Name] = after
	return v
}

func (r *rater) kind(k *actors.KindStats) kindView {
	before, known := r.before.kinds[k.Kind]
	v := kindView{Kind: k.Kind, Room: roomOf(k.Kind), Actors: k.Living, Busy: k.Busy, Full: k.Full,
		BusySeconds: r.age(k.BusySince), BusyWith: k.BusyWith, Handled: k.Handled,
		Rate: r.rate(before.handled, k.Handled, known), Turns: k.Turns, Restarts: k.Restarts}
	recent, seen := r.recent.kinds[k.Kind]
	v.Work = times(&k.Work, &recent.work, seen)
	after := counters{handled: k.Handled, work: k.Work}
	rank := k.Worst
	for i := range k.Lanes {
		l := r.lane(&k.Lanes[i].LaneStats, before.overflow[i], known)
		l.Fill = k.Lanes[i].FillMax
		l.Wait = times(&k.Lanes[i].Wait, &recent.wait[i], seen)
		after.wait[i] = k.Lanes[i].Wait
		after.overflow[i] = overflow(&k.Lanes[i].LaneStats)
		rank = max(rank, strain(&l))
		v.Lanes = append(v.Lanes, kindLaneView{laneView: l, DepthMax: k.Lanes[i].DepthMax, BytesMax: k.Lanes[i].BytesMax})
	}
	v.Condition = rank.String()
	r.after.kinds[k.Kind] = after
	return v
}

func (r *rater) lane(l *actors.LaneStats, before uint64, known bool) laneView {
	return laneView{Lane: l.Lane.String(), Policy: l.Policy, Depth: l.Depth, Bound: l.Bound.Messages, Bytes: l.Bytes,
		BytesBound: l.Bound.Bytes, Fill: l.Fill(), HighWater: l.HighWater, Admitted: l.Admitted, Rejected: l.Rejected,
		Dropped: l.Dropped, Coalesced: l.Coalesced, Resynced: l.Resynced, Whispered: l.Whispered, Aborted: l.Aborted,
		Overflowed: r.rate(before, overflow(l), known)}
}

// strain is what the overflow since the last picture says, whatever the depth is at this moment. To drop or to resync
// is what those policies are for, and a slow client can bring it about; a refusal is somebody's error.
func strain(l *laneView) actors.Condition {
	switch {
	case l.Overflowed == nil || *l.Overflowed == 0:
		return actors.Calm
	case l.Rejected > 0:
		return actors.Full
	default:
		return actors.Strained
	}
}

// overflow is how many messages have met the bound so far.
func overflow(l *actors.LaneStats) uint64 { return l.Rejected + l.Dropped + l.Resynced }

// times summarises a histogram, and what it has counted since an earlier copy if there is one.
func times(h, earlier *actors.Histogram, known bool) timesView {
	v := timesView{Count: h.Count(), P50: h.Quantile(0.5).Seconds(), P99: h.Quantile(0.99).Seconds()}
	if known {
		recent := h.Since(earlier)
		v.RecentCount, v.RecentP50 = recent.Count(), recent.Quantile(0.5).Seconds()
		v.RecentP99 = recent.Quantile(0.99).Seconds()
	}
	return v
}

// selection says what of a view somebody wants to see.
type selection struct {
	// kind is one kind, or empty for all; top is how many actors of each, limit how many together.
	kind       string
	top, limit int
}

// of gives the view as selected. The actors of a kind stay in their order.
func (s selection) of(v *troupeView) *troupeView {
	out := *v
	out.Kinds, out.Actors = []kindView{}, []actorView{}
	for i := range v.Kinds {
		if s.kind == "" || s.kind == v.Kinds[i].Kind {
			out.Kinds = append(out.Kinds, v.Kinds[i])
		}
	}
	seen := map[string]int{}
	for i := range v.Actors {
		a := &v.Actors[i]
		if s.kind != "" && s.kind != a.Kind || seen[a.Kind] >= s.top || len(out.Actors) >= s.limit {
			continue
		}
		seen[a.Kind]++
		out.Actors = append(out.Actors, *a)
	}
	return &out
}

// look gives the picture of this server's actors, shared with all who look now.
func (s *Server) look(want selection) *troupeView { return want.of(s.pictures.view()) }

// newPictures takes pictures of the configured actors; of none there are empty ones.
func newPictures(s *Server) *pictures {
	return &pictures{edge: s.edgeView, take: func() *actors.Picture {
		if s.cfg.Actors == nil {
			return &actors.Picture{At: time.Now()}
		}
		return s.cfg.Actors.Picture(pictureActorsPerKind)
	}}
}

// edgeView tells who this member is and what its edge is doing.
func (s *Server) edgeView() (memberView, gatewayView) {
	raft, state := s.cfg.Raft.Status(), s.cfg.Store.State()
	m := memberView{ID: s.cfg.Member.String(), ClusterID: s.cfg.Cluster.String(), Version: s.cfg.Versions.Troupe,
		Leader: raft.Leader == s.cfg.Member, Ready: s.isReady.Load(), Term: uint64(raft.Term),
		Revision: int64(state.Revision), Applied: uint64(state.Applied)}
	if state.Membership != nil {
		for i := range state.Membership.Members {
			if state.Membership.Members[i].ID == s.cfg.Member {
				m.Name = state.Membership.Members[i].Name
			}
		}
	}
	g := gatewayView{Connections: s.conns.size(), Requests: s.work.count.Load(), AnswerBytesBound: s.cfg.AnswerBytesMax}
	g.AnswerBytes, _ = s.answers.inFlight()
	for _, one := range s.gates.all() {
		g.Gates = append(g.Gates, gateView{Name: one.name, Open: one.inside(), Bound: one.max})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for split := range s.splits {
		g.HalfOpen += split.halfOpen()
	}
	return m, g
}
