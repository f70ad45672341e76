package gateway

import "time"

// Limits of the JSON gateway. Its calls are also under the limits of gRPC calls: it makes them.
const (
	// jsonConnectionsMax bounds the connections that use the JSON gateway, apart from gRPC's and from those of health
	// probes and scrapers. A watch needs one for itself, and costs with it about 75 KiB and four goroutines.
	jsonConnectionsMax = 8 << 10
	// jsonDescriptorShare is the part of the file descriptors that they may have.
	jsonDescriptorShare = 4
	// jsonBodyFactor is how much larger than a gRPC message its JSON may be: base64 takes a third more, names and white
	// space take the rest.
	jsonBodyFactor = 2
	// jsonBodiesBytesMax bounds what is read of all bodies, with jsonObjectBytes for each object in them, until their
	// messages are decoded and, of single ones, answered; more is refused. Decoding takes about five times as much as the
	// text for a moment.
	jsonBodiesBytesMax = 128 << 20
	// jsonObjectBytes is what a message within a message takes, however little its text is: twice the largest of a
	// transaction, since a request is decoded from its text, and then as gRPC's are.
	jsonObjectBytes = 256
	// jsonBodyBytesFree is what each body may hold without being counted there, so that small requests pass when large
	// ones have used it up: no more than the connection itself costs.
	jsonBodyBytesFree = 16 << 10
	// jsonDiscardedBytesMax is how much of a body that is too large is read all the same, within jsonBodyTimeout, so that
	// its client gets to the answer; beyond it the connection is closed under its hands.
	jsonDiscardedBytesMax = 64 << 20
	// jsonReadBytes is how much of a body is read at a time.
	jsonReadBytes = 32 << 10
	// jsonBodyTimeout is how long the body of a single request, the first message of a sequence or that of a websocket may
	// take: as long as the largest does at 1 Mbit/s.
	jsonBodyTimeout = 40 * time.Second
	// jsonAnswerWeight is how much memory an answer takes in JSON, for each byte that it takes in gRPC: it is decoded, and
	// written as text of up to three times its size. Answers are entered in the ledger with it.
	jsonAnswerWeight = 8
	// jsonWriteBytes is how much of an answer is written at a time; by each such step a client shows that it reads.
	jsonWriteBytes = 64 << 10
)

func init() {
	if jsonBodyBytesFree > jsonReadBytes || jsonBodiesBytesMax < 8*jsonBodyFactor*(requestBytesDefault+grpcOverheadBytes) {
		panic("gateway: the limits of JSON bodies contradict each other")
	}
}
