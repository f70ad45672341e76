package proto

// EventKind says what an Event did to its key. The numbers are mvccpb.Event_EventType's.
type EventKind uint8

// The two kinds of event.
const (
	EventPut    EventKind = 0
	EventDelete EventKind = 1
)

// Event is one change of one key. It is immutable from the moment the store makes it, and may be read by any number of
// goroutines; nobody may write to the slices it holds.
type Event struct {
	// Version is the revision that made the change.
	Version Version
	// Kind is put or delete.
	Kind EventKind
	// Created is true for a put that made the key: its create revision is its modification revision.
	Created bool
	// Key is the changed key.
	Key []byte
	// KeyValue is the encoded mvccpb.KeyValue as a watcher gets it. For a delete it has the key and the modification
	// revision only.
	KeyValue []byte
	// Previous names the version this change replaced; zero for a created key.
	Previous Version
	// PreviousKeyValue is the encoded mvccpb.KeyValue of Previous, when the store had it at hand, else nil: then it is
	// read from history by Previous.
	PreviousKeyValue []byte
}

// Size is the number of bytes the event counts for in a bound: its encodings and a fixed share for the struct.
func (e *Event) Size() int { return len(e.Key) + len(e.KeyValue) + len(e.PreviousKeyValue) + 96 }

// EventBatch is the events of one applied batch of entries: whole revisions, in order. Immutable.
type EventBatch struct {
	// Events holds the changes in the order of their versions.
	Events []Event
	// Revision is the store's revision after the batch; every event is at or below it.
	Revision Revision
	// Compacted is the compact revision after the batch.
	Compacted Revision
}

// Size is the number of bytes the batch counts for in a bound.
func (b *EventBatch) Size() int {
	n := 64
	for i := range b.Events {
		n += b.Events[i].Size()
	}
	return n
}
