package watchactor

// Number is the number in the name of the stream's actor, watch/stream/N, by which Inspect names it.
func (s *Stream) Number() uint64 { return uint64(s.id) }
