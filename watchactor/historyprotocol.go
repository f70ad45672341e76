package watchactor

import "troupe/proto"

// historyMessage is anything the reader of history understands. One lane with policy reject: a stream whose wants are
// refused keeps its watches' places and asks again after a pause. A stream has few wants out, so that refusing takes
// very many streams.
type historyMessage interface{ historyMessage() }

// wants asks for the next piece of history for watches of one stream. Told by the stream, which has room for the
// answers. Each want is answered exactly once, unless the stream ends first.
type wants struct {
	stream streamAddress
	list   []want
}

// want is one watch that is behind: it has sent everything below from.
type want struct {
	watch int64
	epoch epoch
	from  proto.Revision
	keys  Range
	as    variant
}

// wantBytes is what a want counts for beyond its keys.
const wantBytes = 112

// Size is what waiting costs.
func (m wants) Size() int {
	n := 64
	for i := range m.list {
		n += wantBytes + len(m.list[i].keys.Key) + len(m.list[i].keys.End)
	}
	return n
}

// readNext goes on with reading. Told by the reader itself; at most one is waiting.
type readNext struct{}

func (wants) historyMessage()    {}
func (readNext) historyMessage() {}

// served answers wants of one stream, told by the reader of history.
type served struct{ items []servedItem }

// servedItem answers one want.
type servedItem struct {
	watch int64
	epoch epoch
	// run is what the watch gets, nil if the piece has nothing for it.
	run *run
	// next is the revision to go on with, at is the store's when the piece was read.
	next, at proto.Revision
	// compacted, if not 0, says that what the watch needs is gone, and what the compact revision is.
	compacted proto.Revision
	// lost says that the answer was forgotten on the way: the watch asks again.
	lost bool
	// err is a failure that ends the stream.
	err error
}

// Size counts the shared events in full, as if the stream were alone to hold them.
func (m *served) Size() int {
	n := 64
	for i := range m.items {
		n += m.items[i].bytes()
	}
	return n
}

func (i *servedItem) bytes() int {
	if i.run == nil {
		return frameBytes
	}
	return frameBytes + i.run.bytes
}

// forget gives the answer that stands for this one when there is no room to keep it.
func (m *served) forget() *served {
	lost := &served{items: make([]servedItem, len(m.items))}
	for i := range m.items {
		one := m.items[i]
		if one.run != nil {
			one = servedItem{watch: one.watch, epoch: one.epoch, lost: true}
		}
		lost.items[i] = one
	}
	return lost
}

func (*served) streamMessage() {}
