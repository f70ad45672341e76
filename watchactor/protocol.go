package watchactor

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// streamID names a stream within one process; ids are never used twice.
type streamID uint64

// groupID names a group within one process; ids are never used twice.
type groupID uint64

// epoch counts a stream's joins. What a group says about another join than a watch's last is stale.
type epoch uint32

// --- hub ---

// hubMessage is anything the hub understands. It has one lane, so that what a stream asks keeps its place among the
// batches; the policy is resync, see replayHub. None carries a reply, none is lost: batches that do not fit become one
// lostBatches, everything else waits in the marker.
type hubMessage interface{ hubMessage() }

// published is one batch of the store, told in the store's turn after its state was published and before its waiters
// are answered. Routed to the groups it concerns.
type published struct{ batch *proto.EventBatch }

// Size is the batch's, which is what waiting costs.
func (m published) Size() int { return m.batch.Size() }

// lostBatches stands for batches that the hub will not see: those with revisions first to through. Every group is told
// that it is behind. Made by the full mailbox, and by Client.Lost after the store's state was replaced.
type lostBatches struct{ first, through proto.Revision }

// join asks for a watch to be admitted by the group of its range: everything below from has been sent. Told by a
// stream; the hub makes the group if need be and hands it on. first is set on a watch's first join, which counts as a
// user of the group until leave with final or streamGone.
type join struct {
	stream streamAddress
	watch  int64
	epoch  epoch
	from   proto.Revision
	keys   Range
	as     variant
	first  bool
}

// leave takes a watch out of its group: for good when final, else because the client reads too slowly and the watch
// goes on from history until it joins again.
type leave struct {
	stream streamID
	watch  int64
	keys   Range
	final  bool
}

// streamGone says that a stream has ended; all its watches leave. Told once by the stream's end, whatever the reason.
type streamGone struct{ stream streamID }

// askProgress asks for a point in time that is the same for all groups of the stream: told on to each of them as
// probe once the hub has routed everything up to through. A stream has at most one out.
type askProgress struct {
	stream  streamAddress
	through proto.Revision
}

// groupFailed says that a group has panicked: every stream that uses it is ended with a retriable error.
type groupFailed struct{ group groupID }

// replayHub is the marker of the full mailbox: what came since, in order, with batches replaced by lostBatches.
type replayHub struct{ messages []hubMessage }

func (published) hubMessage()   {}
func (lostBatches) hubMessage() {}
func (join) hubMessage()        {}
func (leave) hubMessage()       {}
func (streamGone) hubMessage()  {}
func (askProgress) hubMessage() {}
func (groupFailed) hubMessage() {}
func (*replayHub) hubMessage()  {}

// --- group ---

// groupMessage is anything a group understands. Sent by the hub only, in one lane, so that joins and batches keep their
// order; the policy is resync as in the hub.
type groupMessage interface{ groupMessage() }

// routed is a batch with events that may concern the group. picks are the positions of the events in its range; nil
// means that the group has to look at all of them.
type routed struct {
	batch   *proto.EventBatch
	picks   []int32
	passage *passage // given back once the group is done with it
}

// Size is that of the events that concern the group, plus the struct.
func (m routed) Size() int {
	if m.picks == nil {
		return m.batch.Size()
	}
	n := 64 + 4*len(m.picks)
	for _, i := range m.picks {
		n += m.batch.Events[i].Size()
	}
	return n
}

// dropStream takes all watches of a stream out.
type dropStream struct{ stream streamID }

// probe asks the group to answer the stream with probed, behind all it has told it before. at is the hub's revision:
// the group has been told every event of its ranges up to it. groups is how many groups were asked.
type probe struct {
	stream streamAddress
	at     proto.Revision
	groups int
}

// restOver says that the group has rested. Told by its own timer; at most one is armed.
type restOver struct{}

// replayGroup is the marker of the full mailbox.
type replayGroup struct{ messages []groupMessage }

func (routed) groupMessage()       {}
func (lostBatches) groupMessage()  {}
func (join) groupMessage()         {}
func (leave) groupMessage()        {}
func (dropStream) groupMessage()   {}
func (probe) groupMessage()        {}
func (restOver) groupMessage()     {}
func (*replayGroup) groupMessage() {}

// --- stream ---

// streamAddress is how a group reaches a stream.
type streamAddress struct {
	id  streamID
	ref actors.Ref[streamMessage]
}

// streamMessage is anything a stream understands. Requests and what the stream tells itself travel in the Control
// lane, which is bounded by the credits that requests need; what groups tell travels in the Normal lane, in order,
// with policy resync: deliveries that do not fit become one lostDeliveries per group, everything else waits in the
// marker.
type streamMessage interface{ streamMessage() }

// request is one request of the client. Told by Stream.Request, in the order of the calls; it holds a credit until its
// answer has been taken or it turns out to have none.
type request struct {
	message *etcdserverpb.WatchRequest
	// refusal, if not empty, is why a create is not permitted.
	refusal string
	bytes   int
}

// Size is the encoded size of the request.
func (m request) Size() int { return m.bytes }

// drained says that the reader has made room in the outbox. Told by Stream.Next when the stream asked for it.
type drained struct{}

// advance goes on with reading history. Told by the stream itself; at most one is waiting.
type advance struct{}

// progressDue is the tick of the periodic progress notifications. Told by the stream's timer while it has watches that
// want them.
type progressDue struct{}

// delivered is what one batch has for the watches of one stream in one group. The stream has then been told every
// event up to position for those watches.
type delivered struct {
	group    groupID
	position proto.Revision
	items    []item
	passage  *passage // given back once the stream is done with it
}

// item is the share of one watch.
type item struct {
	watch int64
	epoch epoch
	run   *run
}

// Size counts the shared events in full, as if the stream were alone to hold them.
func (m *delivered) Size() int {
	n := 64
	for i := range m.items {
		n += frameBytes + m.items[i].run.bytes
	}
	return n
}

// first is the lowest revision in the delivery.
func (m *delivered) first() proto.Revision {
	low := m.items[0].run.first
	for i := range m.items {
		low = min(low, m.items[i].run.first)
	}
	return low
}

// admitted says that a watch is in its group from the revision it asked for.
type admitted struct {
	group groupID
	watch int64
	epoch epoch
}

// readOn says that a watch is not in its group: events after what it has sent have gone out already, up to through. It
// reads them from history and asks again.
type readOn struct {
	group   groupID
	watch   int64
	epoch   epoch
	through proto.Revision
}

// behind says that the group has missed batches, from revision first on, and has let go of all its watches.
type behind struct {
	group groupID
	first proto.Revision
}

// lostDeliveries stands for deliveries of a group that the stream's full mailbox has dropped, the first of which began
// with revision first. The group still counts the stream's watches as its own.
type lostDeliveries struct {
	group groupID
	first proto.Revision
}

// probed answers a probe: everything of this group up to at has been told.
type probed struct {
	group  groupID
	at     proto.Revision
	groups int
}

// replayStream is the marker of the full Normal lane.
type replayStream struct {
	messages []streamMessage
	// lost finds the lostDeliveries of a group that nothing else of that group has followed.
	lost map[groupID]int
}

func (request) streamMessage()        {}
func (drained) streamMessage()        {}
func (advance) streamMessage()        {}
func (progressDue) streamMessage()    {}
func (*delivered) streamMessage()     {}
func (admitted) streamMessage()       {}
func (readOn) streamMessage()         {}
func (behind) streamMessage()         {}
func (lostDeliveries) streamMessage() {}
func (probed) streamMessage()         {}
func (*replayStream) streamMessage()  {}
