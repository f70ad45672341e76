package watchactor

import (
	"time"

	"troupe/actors"
)

// Every bound of this room, with its reason. The relations between them are tested.
const (
	// responseAllowanceBytes is what etcd adds to max-request-bytes for the largest message it receives, and below which
	// it keeps watch responses when fragmenting (api.md 0.3).
	responseAllowanceBytes = 512 << 10
	// responseOverheadBytes is kept free for what is not an event: header (at most 46 bytes), id, flags.
	responseOverheadBytes = 128
	// responseBytesWanted is the size from which responses are divided between revisions. gRPC holds two responses of a
	// client that does not read; what it holds should not depend on how many revisions were committed together.
	responseBytesWanted = 256 << 10
	// requestBytesDefault is etcd's default of max-request-bytes.
	requestBytesDefault = 1536 << 10

	// spliceBytesMin is the size from which a stored value is referred to and not copied: below it, copying is cheaper
	// than another piece on the way to the socket.
	spliceBytesMin = 4 << 10

	// hubInboxMessages and hubInboxBytes bound what the store may be ahead of the hub. A hub turn takes microseconds, so a
	// full inbox means a stall, and re-reading is cheaper than holding more.
	hubInboxMessages = 8192
	hubInboxBytes    = 32 << 20

	// groupInboxMessages and groupInboxBytes bound what the hub may be ahead of one group.
	groupInboxMessages = 2048
	groupInboxBytes    = 16 << 20

	// streamInboxMessages and streamInboxBytes bound what groups may be ahead of one stream's turn. What the client has
	// not read yet is bounded by the outbox, not here.
	streamInboxMessages = 1024
	streamInboxBytes    = 4 << 20

	// restPerDeliveryDefault is how long a group rests per watcher it has told of a batch, divided by the processors:
	// about twice what a delivery costs the server, the system and a client beside it, so that telling takes at most half
	// of the machine. groupRestMax is the longest rest: what a watcher may be told late, when there are thousands.
	restPerDeliveryDefault = 50 * time.Microsecond
	groupRestMax           = 50 * time.Millisecond
	// gatheredBytesMax is how much a resting group keeps before it delivers all the same.
	gatheredBytesMax = 256 << 10
	// itemsExpected is how many watches of one stream a batch usually concerns in a group of many ranges, itemsAtOnce how
	// many deliveries share a piece of memory, which lives as long as the slowest of them.
	itemsExpected = 2
	itemsAtOnce   = 1024

	// groupsDefault is how many ranges get a group of their own; the rest share the overflow group. A thousand distinct
	// ranges are many more than controllers watch; each costs an actor.
	groupsDefault = 1024

	// outboxBytesDefault is how much a stream buffers for a client that reads slowly: two of the largest responses. More
	// only makes a slow client's data older.
	outboxBytesDefault = 4 << 20
	// outboxTotalDefault is how much all outboxes together hold, and what the transport holds of their responses
	// (Stream.Lend), before each is held to outboxBytesMin and gives the transport one response at a time; at twice
	// that, it holds one response beside that. Shared bytes count in full for each stream, so that the memory is usually
	// far less.
	outboxTotalDefault = 96 << 20
	// outboxWall is how many times that the streams hold when none gets anything more, so that one response for each of
	// very many streams is not too much either: those that have nothing wait until others have read, or until who does
	// not read is cut off. ownerWall is the same for the streams of one connection: half, so that it takes several that
	// do not read to keep others waiting, and enough for one to be cut off. wallPause is how long a stream waits before it
	// looks again.
	//
	// All that watches hold is bounded by this, what of history was asked for below it (no more than this again),
	// transitBytesMax, shelfBytesMax, hubInboxBytes, and for each stream requestBytesMax and what the transport holds
	// uncounted: of small responses, 64 KiB with gRPC.
	outboxWall = 4
	ownerWall  = 2
	wallPause  = time.Second
	// outboxBytesMin is what a stream may buffer beyond that: a few ordinary responses.
	outboxBytesMin = 64 << 10
	// transitBytesMax bounds what is on its way from the hub to all outboxes. Turns take microseconds, so that so much
	// means a stall; what does not fit is left to history.
	transitBytesMax = 64 << 20
	// joinedFrameBytesMax is up to which size frames that wait one behind the other are sent as one response: a send costs
	// the same, however small.
	joinedFrameBytesMax = 64 << 10
	// frameBytes is what a frame counts for beyond its events.
	frameBytes = 96

	// requestsMax and requestBytesMax bound the requests of one stream that are unhandled or whose answer the client has
	// not taken; past them the stream's requests are not read. etcd buffers 16 control answers; clients that open
	// thousands of watches at once profit from a longer pipe. One request of any size is always taken.
	requestsMax     = 256
	requestBytesMax = 256 << 10
	// inspectsMax is how many questions of the debug pages wait at one stream: a stream that answers has one, and one that
	// does not should not collect them.
	inspectsMax = 4
	// streamControlMessages leaves room beside the requests for the few messages a stream tells itself, and the questions.
	streamControlMessages = requestsMax + inspectsMax + 12
	streamControlBytes    = 2*requestBytesMax + (8 << 20)

	// progressWantedMax is how many progress requests wait for the stream's watches to be in step; more are dropped, as
	// etcd drops all of them then.
	progressWantedMax = 16

	// heldBytesMax bounds the deliveries a stream holds back while it makes a progress answer; past it the watches
	// concerned go back to history.
	heldBytesMax = 1 << 20

	// catchupBytesMax is how much history one turn reads, so that one turn stays short, watches take turns, and what gRPC
	// holds of a response that the client does not take is little.
	catchupBytesMax = 128 << 10
	// catchupAheadBytes is how much of history a stream buffers ahead of its client: enough to keep the connection busy
	// while the next piece is read. More would only be memory: history does not run away.
	catchupAheadBytes = 512 << 10
	// wantsMax is how many pieces of history a stream asks for at a time, for as many watches.
	wantsMax = 4
	// shelfBytesMax and shelfPiecesMax bound the pieces of history that are kept for watches that come a little later,
	// their encodings included.
	shelfBytesMax  = 8 << 20
	shelfPiecesMax = 32
	// shelfKept is how long the kept pieces outlive their last use.
	shelfKept = 10 * time.Second
	// nearRevisions is how far before another watch's place one may be and still have the reading begin with it, so that
	// both are at the same place afterwards.
	nearRevisions = 1024
	// linesLookedAtMax bounds how many ranges a piece is offered to: about a millisecond of looking.
	linesLookedAtMax = 4096
	// servedPerTurnMax, servedEventsPerTurnMax and servedBytesPerTurnMax bound what one turn delivers, over all watches
	// that it serves, to what is sent in a few milliseconds: what is delivered at once, others wait behind. The watches
	// that get nothing find the piece on the shelf in the next turn.
	servedPerTurnMax       = 1024
	servedEventsPerTurnMax = 2048
	servedBytesPerTurnMax  = 1 << 20
	// restPerEventDefault and restPerMebibyteDefault are how long the reader of history rests for what it has delivered,
	// divided by the processors, while somebody writes: about what encoding, sending and the client's decoding take, of
	// large values half more. Less delivers sooner and slows writes: with 12 ms a MiB their p99 beside 200 streams is
	// 1.2 times what it is alone, with 8 it is 1.25 times.
	restPerEventDefault    = 8 * time.Microsecond
	restPerMebibyteDefault = 12 * time.Millisecond
	// restMin is the shortest rest worth a timer, restMax the longest in one go.
	restMin = time.Millisecond
	restMax = 50 * time.Millisecond
	// stillTurns is how many turns without a write make the reader believe that nobody writes.
	stillTurns = 16
	// sendPacedMin is the size from which a frame waits for its turn to be sent while somebody writes (restPerMebibyte
	// of them at a time), sendWaitMax how long it waits at most, sendStillAfter how long nothing was written when nobody
	// is said to write. sendWaitMax is what the last of 200 frames of 64 KiB waits for on two processors; frames beyond
	// it leave together. A frame that has to wait for sendBusyMin means that much is delivered, for sendBusyAfter.
	sendPacedMin   = 16 << 10
	sendWaitMax    = 75 * time.Millisecond
	sendStillAfter = 100 * time.Millisecond
	sendBusyMin    = 10 * time.Millisecond
	sendBusyAfter  = time.Second
	// historyInboxMessages and historyInboxBytes bound what streams ask of the reader of history before it takes it.
	// Beyond it they ask again after a pause.
	historyInboxMessages = 1 << 16
	historyInboxBytes    = 16 << 20

	// retiredIDsMax is how many ids of watches cancelled by compaction a stream remembers, so that a client that cancels
	// such a watch gets the answer etcd gives.
	retiredIDsMax = 1024

	// catchupRetryDelay is the pause before history is read again when it could not be read, or was behind what a group
	// has seen. That is not expected; the pause keeps it from spinning.
	catchupRetryDelay = 10 * time.Millisecond

	// progressIntervalDefault and progressIntervalMin are etcd's (api.md 0.3); progressJitter is the share added at
	// random.
	progressIntervalDefault = 10 * time.Minute
	progressIntervalMin     = 100 * time.Millisecond
	progressJitter          = 0.1

	// handFramesMax is how many frames the reader of an outbox takes out at a time.
	handFramesMax = 32
	// framesKept is how many frames an idle stream keeps room for: the one that comes next needs no allocation.
	framesKept = 4
	// framesMoved is how many frames have to be taken before those behind them are moved to the front.
	framesMoved = 64

	// picksKept is the longest list of positions a range keeps for the next batch. Most batches have one event per key.
	picksKept = 8

	// rangeNameBytesMax cuts keys in actor names.
	rangeNameBytesMax = 48
)

// bounds are the limits that a seeded test lowers, so that small histories reach them.
type bounds struct {
	hub, group, stream, history actors.Bound
	heldBytes, catchupBytes     int
	aheadBytes, shelfBytes      int
	transitBytes                int64
	// The rests are for one processor.
	restPerEvent, restPerMebibyte, restPerDelivery time.Duration
}

// boundsDefault is what runs in production.
var boundsDefault = bounds{
	hub:       actors.Bound{Messages: hubInboxMessages, Bytes: hubInboxBytes},
	group:     actors.Bound{Messages: groupInboxMessages, Bytes: groupInboxBytes},
	stream:    actors.Bound{Messages: streamInboxMessages, Bytes: streamInboxBytes},
	history:   actors.Bound{Messages: historyInboxMessages, Bytes: historyInboxBytes},
	heldBytes: heldBytesMax, catchupBytes: catchupBytesMax,
	aheadBytes: catchupAheadBytes, shelfBytes: shelfBytesMax, transitBytes: transitBytesMax,
	restPerEvent: restPerEventDefault, restPerMebibyte: restPerMebibyteDefault, restPerDelivery: restPerDeliveryDefault,
}
