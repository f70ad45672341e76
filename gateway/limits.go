package gateway

import "time"

// Limits that operators set have their default here; those without a flag are constants.
const (
	// requestBytesDefault is etcd's --max-request-bytes: 1.5 MiB.
	requestBytesDefault = 1536 * 1024
	// grpcOverheadBytes is what a gRPC message may exceed max-request-bytes by, so that a request that is too large is
	// answered by the check of the raft entry, with etcd's text, as long as it is near the limit.
	grpcOverheadBytes = 512 * 1024
	// txnOpsDefault is etcd's --max-txn-ops.
	txnOpsDefault = 128
	// quotaBytesDefault is etcd's quota when the flag is 0: 2 GiB.
	quotaBytesDefault = 2 << 30
	// placeLeaseTTL is the time to live of the lease that a client gets for a lock or an election if it brings none;
	// etcd's. Nobody renews it.
	placeLeaseTTL = 60 * time.Second
	// answerBytesInFlightDefault bounds the bytes of large answers that are encoded and not yet taken by the network,
	// over all clients: beyond it readers wait. It holds a hundred 4 MiB lists, and is far below what etcd may use.
	answerBytesInFlightDefault = 512 << 20
	// answerBytesCounted is the size from which an answer is counted against that bound. gRPC queues whatever a client
	// does not read, for as many calls as a connection may have, so that only what is as small as the call itself may go
	// uncounted.
	answerBytesCounted = 2 << 10
	// lentBytesMin is the size from which gRPC gets an answer's own memory instead of a copy: that of the pieces in which
	// the store writes answers.
	lentBytesMin = 64 << 10
	// answerWaitersMax bounds the readers that wait for that bound, in each class of answers; more are refused with "too
	// many requests".
	answerWaitersMax = 4096
	// readyWaitersMax bounds the requests that wait for the member to become ready; more are refused. etcd leaves them in
	// the kernel's backlog, which is of this order.
	readyWaitersMax = 4096
	// sniffedConnectionsMax bounds connections of which it is not yet known whether they speak HTTP/2. A client sends its
	// first bytes at once, so that so many are only seen under attack, when the oldest is closed, or in a burst, when the
	// next is accepted as soon as one has been looked at.
	sniffedConnectionsMax = 1024
	// sniffTimeout is how long a connection may take to show its protocol, and to send its SETTINGS if that is HTTP/2.
	sniffTimeout = 10 * time.Second
	// sniffBufferBytes holds the HTTP/2 preface with the SETTINGS of any client and, usually, the whole first packet.
	sniffBufferBytes = 4 << 10
	// acceptPause is how long accepting rests when there are no file descriptors left.
	acceptPause = 10 * time.Millisecond
	// stopGrace is how long a stop waits, when no admitted request is left, for answers on their way and for streams and
	// connections to end by themselves: some round trips of a wide network, and little of what an orchestrator gives.
	stopGrace = 300 * time.Millisecond
	// handshakeTimeout is how long a gRPC connection may take from its preface to its first settings frame.
	handshakeTimeout = 10 * time.Second
	// httpHeaderTimeout and httpIdleTimeout bound an HTTP/1.1 connection that sends slowly or nothing.
	httpHeaderTimeout = 10 * time.Second
	httpIdleTimeout   = 2 * time.Minute
	// httpHeaderBytesMax bounds the header of an HTTP/1.1 request; health probes and scrapers send a few hundred bytes.
	httpHeaderBytesMax = 64 << 10
	// answerWriteMax is how long a client may take to read an answer over HTTP/1.1 that is no stream, with a second more
	// for each answerRateMin bytes that it has taken: 1 Mbit/s, as for what it sends (jsonBodyTimeout). streamWriteMax is
	// how long a client of a stream may take nothing of what waits for it: long enough to be stopped in a debugger for a
	// moment, and not for good.
	answerWriteMax = 40 * time.Second
	answerRateMin  = 128 << 10
	streamWriteMax = 2 * time.Minute
	// hangUpMax is how long a client that is still sending has to see that its connection is closed, and hangUpBytesMax
	// what it may send meanwhile.
	hangUpMax      = time.Second
	hangUpBytesMax = 4 << 20
	// clientVersionsMax bounds the values of the label client_api_version, which clients choose.
	clientVersionsMax = 64
	// clientVersionBytesMax bounds one such value.
	clientVersionBytesMax = 64
	// alarmsSeenMax bounds how many cleared alarms etcd_debugging_server_alarms goes on to show; a cluster has two alarms
	// for each member.
	alarmsSeenMax = 64
	// crowdedCalls is how many unary calls at once are more than a few processors should work on (Config.Crowded).
	crowdedCalls = 16
	// steppedBytesMin is the least that gRPC writes without having let other goroutines run first, to collect more;
	// steppedBytesMax is what needs no more.
	steppedBytesMin = 1000
	steppedBytesMax = 16 << 10
	// connectionBufferBytes is the read and the write buffer of a gRPC connection: larger ones mean fewer system calls
	// when many small answers leave together (measured: reference figures of the project, a quarter less CPU per call).
	connectionBufferBytes = 128 << 10
	// rangeStreamKeysFirst is how many keys the first message of a streamed range has; etcd's.
	rangeStreamKeysFirst = 10
	// windowBytes is the flow-control window of a stream and of a connection: what a client may send before the handler
	// reads. It holds most requests whole. It is fixed, because grpc-go otherwise measures the connection with a ping for
	// nearly every small request, which costs the server a read, a write and two wake-ups each; and because a window that
	// grows to 16 MiB per connection is a bound that clients choose.
	windowBytes = 1 << 20
	// streamWorkers is the number of goroutines that grpc-go keeps for handlers; more calls get goroutines of their own,
	// whose stacks grow once in each: a fifteenth of the CPU of a put. A worker that rests takes 8 KiB.
	streamWorkers = 128
	// pingAckHeldMax is how long the answer to a ping waits for a write that takes it along: longer than most requests
	// take, and far shorter than any client waits for it (keepalive timeouts are seconds). joinedBytesMax is the largest
	// write that is copied for it: most answers, so that a connection that has had a ping keeps no more.
	pingAckHeldMax = 20 * time.Millisecond
	joinedBytesMax = 4 << 10
	// keepaliveMinTimeDefault is etcd's --grpc-keepalive-min-time: clients that ping more often are sent away.
	keepaliveMinTimeDefault = 5 * time.Second
	// keepaliveIntervalDefault and keepaliveTimeoutDefault are etcd's --grpc-keepalive-interval and -timeout.
	keepaliveIntervalDefault = 2 * time.Hour
	keepaliveTimeoutDefault  = 20 * time.Second
	// slowRequestDefault is etcd's --warning-unary-request-duration.
	slowRequestDefault = 300 * time.Millisecond
	// slowLinesPerSecondMax bounds the log lines about slow requests; when everything is slow, more would not help.
	slowLinesPerSecondMax = 10
	// panicLinesPerSecondMax bounds the log lines, with stack, about handlers that panicked: a client that has found a
	// way to make one panic can do so as fast as it likes. The metric counts them all.
	panicLinesPerSecondMax = 1
	// healthLinesPerSecondMax bounds the lines about failed health probes, and acceptLinesPerSecondMax those about
	// connections that could not be accepted.
	healthLinesPerSecondMax = 1
	acceptLinesPerSecondMax = 1
	// loggedKeyBytesMax cuts keys in log lines, loggedOpsMax the compares and operations of a transaction, and
	// loggedTxnDepthMax the transactions in it: a line stays below 64 KiB whatever a client sends.
	loggedKeyBytesMax = 128
	loggedOpsMax      = 5
	loggedTxnDepthMax = 1
	// healthTimeout bounds one health check; probes give up after a few seconds.
	healthTimeout = 5 * time.Second
	// leaderMissesMax is how many election timeouts without a leader end the streams that asked for one.
	leaderMissesMax = 3
	// electionTimeoutDefault is etcd's.
	electionTimeoutDefault = time.Second
	// chunkBytes is the unit in which a large answer is encoded: gRPC frees each as soon as it is written.
	chunkBytes = 32 << 10
	// sharedPieceBytesMin is the size above which a piece of a watch response is shared and not copied: a buffer of its
	// own costs gRPC about as much as copying so much.
	sharedPieceBytesMin = 1 << 10
	// pooledBytesMin is the size from which encoding uses pooled buffers; grpc-go does not pool smaller ones.
	pooledBytesMin = 1 << 10
	// pictureActorsPerKind is how many actors of one kind a picture of the troupe holds, pictureActorsShown how many of
	// each a page shows unless asked for more, and pictureActorsMax how many an answer has at most: there are about ten
	// kinds.
	pictureActorsPerKind = 64
	pictureActorsShown   = 8
	pictureActorsMax     = 1024
	// pictureAgeMin is for how long a picture is shown at least, however many look; pages and streams look once a second.
	pictureAgeMin = 400 * time.Millisecond
	// pictureRestFactor is how much longer a picture is shown than it took: at most a twentieth of one processor goes into
	// pictures, however many actors there are.
	pictureRestFactor = 19
	// rateIntervalMax is the longest time over which a rate is given; over a longer one it would say little about now.
	rateIntervalMax = 30 * time.Second
	// introspectIntervalMin and introspectIntervalDefault are how often a stream of pictures may, and does, get one.
	introspectIntervalMin     = 500 * time.Millisecond
	introspectIntervalDefault = time.Second
	// introspectStreamsMax bounds the streams of pictures: some dashboards, not a way to keep the member busy.
	introspectStreamsMax = 64
)

func init() {
	if introspectIntervalMin < pictureAgeMin || pictureActorsShown > pictureActorsPerKind {
		panic("gateway: the limits of pictures contradict each other")
	}
	// gRPC tells when it has written a buffer only if it is larger than pooledBytesMin.
	if answerBytesCounted <= pooledBytesMin || lentBytesMin < answerBytesCounted || pooledBytesMin >= chunkBytes ||
		sharedPieceBytesMin < pooledBytesMin {
		panic("gateway: the encoding limits contradict each other")
	}
}
