package proto

// StreamInfo is what an operator sees of one watch stream. It is a copy: the reader owns it.
type StreamInfo struct {
	// Stream is the number in the stream actor's name, watch/stream/N.
	Stream uint64
	// Watches is how many watches the stream has; Shown holds at most a bounded number of them, furthest behind first.
	Watches int
	Shown   []WatchInfo
	// QueuedBytes are the encoded answers that wait for the client to read, in bytes.
	QueuedBytes int64
	// Resyncs is how often the stream had to forget its buffer and read history again.
	Resyncs uint64
}

// WatchInfo is what an operator sees of one watch.
type WatchInfo struct {
	ID int64
	// Key and End are the range as the client asked for it: End empty is one key, "\x00" from key on.
	Key, End []byte
	// Next is the first revision the client has not been sent.
	Next Revision
	// Behind is set while the watch reads history instead of being told of events as they happen.
	Behind bool
}
