package gateway

import "time"

// Limits that keep a flood of clients from taking the memory, the descriptors or the time that raft and leases need.
const (
	// requestsMax bounds the requests of the KV service in flight, streamed ranges included. Each costs a goroutine, its
	// stack and the request: some 20 KiB when it is ordinary. Ten thousand clients that ask one thing at a time fit
	// thrice.
	requestsMax = 32 << 10
	// requestBytesFree is what a request may have on the wire without being counted in the bounds that follow: less than
	// the call costs in any case.
	requestBytesFree = 4 << 10
	// requestBytesInFlightMax bounds the bytes of all larger requests that are received and not answered. raft takes
	// 64 MiB of proposals and refuses more; this lets twice that wait for it, and refuses what comes in faster than it is
	// refused there. A request is in memory up to three times: as received, decoded, and encoded for the log.
	requestBytesInFlightMax = 128 << 20
	// controlBytesInFlightMax bounds the same for the Lease service and for messages on streams. They are small, but for
	// keys and ranges of watches of more than a page, or fields that nobody knows.
	controlBytesInFlightMax = 16 << 20
	// txnMessageBytes is what a message within a transaction takes in memory, however little it is on the wire: that of
	// the largest, with the pointers to it.
	txnMessageBytes = 192
	// txnBytesFree is what the messages of a transaction may take without being counted: more than those of a flat one
	// with the default --max-txn-ops and half as many comparisons, so that ordinary ones are never refused.
	txnBytesFree = 64 << 10
	// txnBytesMax bounds what the messages of all other transactions take until they are answered. The largest that fits
	// a request of the default size takes most of it.
	txnBytesMax = 256 << 20
	// txnDepthMax is how deep the nesting of a transaction is looked at. Protobuf decodes nothing that is deeper: its own
	// bound is ten thousand messages, two for each level.
	txnDepthMax = 5000
	// leaseRequestsMax bounds the requests and the streams of the Lease service, apart from all others: a flood of reads
	// or puts must not keep a client from renewing. It is large because each client has one such stream open for good.
	leaseRequestsMax = 64 << 10
	// turnsMax bounds the calls that wait for a lock or an election, apart from all others: whoever holds what they wait
	// for must be able to release it. One that waits costs two goroutines and a watch stream of its own: about 30 KiB.
	turnsMax = 16 << 10
	// operatorRequestsMax bounds the requests of the services that operators use (maintenance, members, users), apart from
	// all others, so that an overloaded member can be asked what is wrong with it.
	operatorRequestsMax = 1 << 10
	// streamsMax bounds the watch streams and other long streams of all clients. An idle one costs about 20 KiB. etcd's
	// own target is ten thousand clients with ten streams each.
	streamsMax = 128 << 10
	// streamsPerConnectionMax bounds the calls of any kind but leases' that are open on one connection, whatever
	// --max-concurrent-streams allows, so that one client cannot have all of the places above.
	streamsPerConnectionMax = 16 << 10
	// grpcConnectionsMax bounds the gRPC connections of all clients. Each costs two goroutines, a descriptor and about
	// 40 KiB.
	grpcConnectionsMax = 32 << 10
	// pageConnectionsMax bounds the HTTP/1.1 connections, apart from gRPC's: health probes and scrapers get through when
	// clients have used theirs up. Each of them needs a handful. Beyond it the connection idle longest makes room.
	pageConnectionsMax = 1 << 10
	// metricsConnectionsMax bounds the connections of the metrics ports. A handful of scrapers and probes use them.
	metricsConnectionsMax = 256
	// idleLooksMax is how many idle connections are looked at for one on which no request waits to be read; if it waits on
	// all of them, the member is busy, and a new connection is refused.
	idleLooksMax = 64
	// descriptorsReserved are the file descriptors that connections leave to the log, the database, snapshots and peers.
	descriptorsReserved = 128
	// headerListBytesMax bounds the metadata of one call; tokens are the largest and have a few KiB. grpc-go's default is
	// 16 MiB, which every stream of a connection could hold.
	headerListBytesMax = 64 << 10

	// answerWaitMax is how long reads wait for room among the answers in flight, when nobody gets any, before they are
	// refused with "too many requests". As long as those in front get room, waiting is better than asking again: it costs
	// a goroutine, and the client has a deadline of its own.
	answerWaitMax = 30 * time.Second
	// smallAnswerBytes is the size below which an answer is small: a key, or a few. smallAnswersShare is the part of the
	// bound of all answers that larger ones leave to them, and smallAnswersMin how many small ones the whole must hold at
	// least: less of them is small where the bound is low. The same for medium ones: a large key, or a page of a list.
	smallAnswerBytes   = 64 << 10
	smallAnswersShare  = 16
	smallAnswersMin    = 4096
	mediumAnswerBytes  = 2 << 20
	mediumAnswersShare = 8
	mediumAnswersMin   = 256
	// answerStallMax is how long a connection with large answers may take nothing while others wait for the room they
	// have; then it is closed. Whatever it takes counts. answerReadRateMin is the least that does where gRPC sees nothing
	// move, in bytes a second.
	answerStallMax    = 15 * time.Second
	answerReadRateMin = 16 << 10
	// answerStuckMax is how long one large watch response may make no progress while others wait, though its client
	// reads others on the same connection. gRPC takes turns between them and tells of each buffer of chunkBytes to twice
	// that, so that it is long enough for 30 at answerReadRateMin, for thousands at a megabyte a second.
	answerStuckMax = 2 * time.Minute
	// answerStallCheck is how often that is looked at.
	answerStallCheck = 3 * time.Second
	// pieceBytes is how much of a large range is read at a time, under its own view, and what gRPC gives back at a time.
	pieceBytes = 512 << 10
	// pieceKeysMin and pieceKeysMax bound the keys of a piece whose size is guessed from earlier ones: a guess may be
	// wrong by the factor between the largest value and the smallest.
	pieceKeysMin, pieceKeysMax = 8, 2048
	// pieceKeyBytesFirst is the size of a key and its value that is assumed before anything has been read. It is large,
	// because a piece is not in the ledger before it has been read.
	pieceKeyBytesFirst = 16 << 10
	// unplannedBytesMax is how much of a range is gathered bit by bit before its whole size is estimated and entered:
	// below it counting the keys that are left would be a large part of the work.
	unplannedBytesMax = 4 << 20
	// gatherTriesMax is how often a range is begun again, because its size was underestimated or a compaction passed it.
	gatherTriesMax = 8
	// wholeReadsMax bounds the reads that must be executed whole before their size is known (sorted and filtered ranges,
	// transactions) and that run at the same time. They wait for a processor, not for memory, so few are enough.
	wholeReadsMax = 4
	// fewGets is how many keys a transaction may read without one of those places. Each value may be as large as a
	// request.
	fewGets = 8

	// leasesNotedMax bounds the leases that a connection is remembered to have renewed, for the debug page.
	leasesNotedMax = 128
	// rejectedLinesPerSecondMax bounds the lines about connections and requests that were refused by a bound.
	rejectedLinesPerSecondMax = 1
)

func init() {
	if pieceBytes < answerBytesCounted || unplannedBytesMax < pieceBytes || pieceKeysMin > pieceKeysMax ||
		answerStallMax+2*answerStallCheck > answerWaitMax || answerStuckMax < answerStallMax {
		panic("gateway: the limits of answers contradict each other")
	}
}
