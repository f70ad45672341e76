package gateway

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/proto"
)

// serviceIntrospect is the service of proto/introspect.proto. It is not among the grpc_server_* metrics, which are
// etcd's, and is answered at any time: before the member is ready, and while it drains.
const serviceIntrospect = "troupe.introspect.v1.Introspect"

// registerIntrospect adds the service to the server of the client ports or of the debug ports.
func (s *Server) registerIntrospect(to *grpc.Server) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceIntrospect,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Get", Handler: s.introspectGet},
			{MethodName: "Keyspace", Handler: s.introspectKeyspace}},
		Streams:  []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: s.introspectWatch}},
		Metadata: "troupe/proto/introspect.proto",
	}, s)
}

// introspectGet answers one picture.
func (s *Server) introspectGet(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (
	out any, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, s.panicked("Introspect.Get", r)
		}
	}()
	in := new(proto.IntrospectRequest)
	if err := decode(in); err != nil {
		return nil, err
	}
	return pictureMessage(s.look(asked(in))), nil
}

// introspectWatch sends pictures until the client or the member ends it. Each is sent before the next is made, so that
// a client that does not read costs one.
func (s *Server) introspectWatch(_ any, stream grpc.ServerStream) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = s.panicked("Introspect.Watch", r)
		}
	}()
	if s.introspectors.Add(1) > introspectStreamsMax {
		s.introspectors.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "troupe: %d streams of pictures are open already, use Get",
			introspectStreamsMax)
	}
	defer s.introspectors.Add(-1)
	in := new(proto.IntrospectRequest)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	want := asked(in)
	ticker := time.NewTicker(introspectInterval(in.GetIntervalSeconds()))
	defer ticker.Stop()
	for {
		if err := stream.SendMsg(pictureMessage(s.look(want))); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.introspectEnd():
			return status.Error(codes.Unavailable, "troupe: the member stops")
		}
	}
}

// introspectEnd ends streams of pictures: those of the client ports with the drain, those of the debug ports with the
// connections.
func (s *Server) introspectEnd() <-chan struct{} {
	if s.cfg.DebugElsewhere {
		return s.pageLife.Done()
	}
	return s.lifetime.Done()
}

// introspectInterval is the interval asked for, within its bounds. Not a number is no interval.
func introspectInterval(seconds float64) time.Duration {
	if !(seconds > 0) {
		return introspectIntervalDefault
	}
	return max(introspectIntervalMin, time.Duration(min(seconds, time.Hour.Seconds())*float64(time.Second)))
}

func asked(in *proto.IntrospectRequest) selection {
	want := selection{kind: in.GetKind(), top: pictureActorsShown, limit: pictureActorsMax}
	if want.kind != "" {
		want.top = pictureActorsPerKind
	}
	if in.GetTop() > 0 {
		want.top = int(in.GetTop())
	}
	return want
}

// pictureMessage is a view as a message. TestIntrospect_HasEveryFieldOfTheJSON compares the two.
func pictureMessage(v *troupeView) *proto.IntrospectPicture {
	m, g := &v.Member, &v.Gateway
	out := &proto.IntrospectPicture{Time: v.Time.Format(time.RFC3339Nano), PictureSeconds: v.PictureSeconds,
		IntervalSeconds: v.IntervalSeconds, RecentSeconds: v.RecentSeconds,
		Member: &proto.IntrospectMember{Id: m.ID, ClusterId: m.ClusterID, Name: m.Name, Version: m.Version,
			Leader: m.Leader, Ready: m.Ready, Term: m.Term, Revision: m.Revision, AppliedIndex: m.Applied},
		Gateway: &proto.IntrospectGateway{Connections: int64(g.Connections), HalfOpenConnections: int64(g.HalfOpen),
			RequestsInFlight: g.Requests, AnswerBytes: g.AnswerBytes, AnswerBytesBound: g.AnswerBytesBound},
		Totals: &proto.IntrospectTotals{Actors: int64(v.Totals.Actors), Full: int64(v.Totals.Full),
			Stuck: int64(v.Totals.Stuck), Strained: int64(v.Totals.Strained)},
	}
	for _, gate := range g.Gates {
		out.Gateway.Gates = append(out.Gateway.Gates,
			&proto.IntrospectGate{Name: gate.Name, Open: gate.Open, Bound: gate.Bound})
	}
	for i := range v.Kinds {
		out.Kinds = append(out.Kinds, kindMessage(&v.Kinds[i]))
	}
	for i := range v.Actors {
		out.Actors = append(out.Actors, actorMessage(&v.Actors[i]))
	}
	return out
}

func kindMessage(k *kindView) *proto.IntrospectKind {
	out := &proto.IntrospectKind{Kind: k.Kind, Room: k.Room, Condition: k.Condition, Actors: int64(k.Actors),
		Busy: int64(k.Busy), Full: int64(k.Full), BusySeconds: k.BusySeconds, BusyWith: k.BusyWith, Handled: k.Handled,
		HandledPerSecond: k.Rate, Turns: k.Turns, Restarts: k.Restarts, Work: timesMessage(k.Work)}
	for i := range k.Lanes {
		l := laneMessage(&k.Lanes[i].laneView)
		l.DepthMax, l.BytesMax = int64(k.Lanes[i].DepthMax), k.Lanes[i].BytesMax
		out.Lanes = append(out.Lanes, l)
	}
	return out
}

func actorMessage(a *actorView) *proto.IntrospectActor {
	out := &proto.IntrospectActor{Name: a.Name, Kind: a.Kind, Room: a.Room, Condition: a.Condition, Fill: a.Fill,
		BusySeconds: a.BusySeconds, BusyWith: a.BusyWith, Handled: a.Handled, HandledPerSecond: a.Rate, Turns: a.Turns,
		TicksWaiting: int64(a.Ticks), Restarts: a.Restarts, Retiring: a.Retiring, Pinned: a.Pinned, OnPanic: a.OnPanic,
		Work: timesMessage(a.Work)}
	for i := range a.Lanes {
		out.Lanes = append(out.Lanes, laneMessage(&a.Lanes[i]))
	}
	return out
}

func laneMessage(l *laneView) *proto.IntrospectLane {
	return &proto.IntrospectLane{Lane: l.Lane, Policy: l.Policy, Depth: int64(l.Depth), Bound: int64(l.Bound),
		Bytes: l.Bytes, BytesBound: l.BytesBound, Fill: l.Fill, HighWater: int64(l.HighWater), Admitted: l.Admitted,
		Rejected: l.Rejected, Dropped: l.Dropped, Coalesced: l.Coalesced, Resynced: l.Resynced, Whispered: l.Whispered,
		Aborted: l.Aborted, OverflowedPerSecond: l.Overflowed, Wait: timesMessage(l.Wait)}
}

func timesMessage(t timesView) *proto.IntrospectTimes {
	return &proto.IntrospectTimes{Count: t.Count, P50Seconds: t.P50, P99Seconds: t.P99, RecentCount: t.RecentCount,
		RecentP50Seconds: t.RecentP50, RecentP99Seconds: t.RecentP99}
}
