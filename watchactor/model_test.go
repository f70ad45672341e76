package watchactor

import (
	"fmt"
	"sort"

	"go.etcd.io/etcd/api/v3/mvccpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// model is a store that keeps every event for the checkers and shows only what is not compacted to the room.
type model struct {
	revision, compacted proto.Revision
	events              []proto.Event
	keys                map[string]modelKey
	values              map[proto.Version][]byte
	newer               map[proto.Version]proto.Revision // when a version was replaced
	// forget makes events come without the previous value, so that it is read by version.
	forget bool
	reads  int
	// busy is how many reads of history have to be asked again.
	busy int
	// race, if set, runs between two readings of the state within one turn, as another goroutine may.
	race func()
}

type modelKey struct {
	create, version int64
	at              proto.Version
}

func newModel() *model {
	return &model{
		revision: 1, keys: map[string]modelKey{},
		values: map[proto.Version][]byte{}, newer: map[proto.Version]proto.Revision{},
	}
}

// event is an event as a client decodes it.
type event = mvccpb.Event

// op is a put, or a delete with value nil.
type op struct {
	key   string
	value []byte
}

func put(key, value string) op { return op{key, []byte(value)} }
func del(key string) op        { return op{key: key} }

// txn applies operations in one revision; deletes of absent keys do nothing. It gives the events.
func (m *model) txn(ops ...op) []proto.Event {
	next := m.revision + 1
	var made []proto.Event
	for _, o := range ops {
		at := proto.Version{Main: next, Sub: proto.SubRevision(len(made))}
		old, exists := m.keys[o.key]
		if o.value == nil && !exists {
			continue
		}
		e := proto.Event{Version: at, Key: []byte(o.key)}
		if exists {
			e.Previous = old.at
			if !m.forget {
				e.PreviousKeyValue = m.values[old.at]
			}
			m.newer[old.at] = next
		}
		kv := &mvccpb.KeyValue{Key: []byte(o.key), ModRevision: int64(next)}
		if o.value == nil {
			e.Kind = proto.EventDelete
			delete(m.keys, o.key)
		} else {
			k := modelKey{create: old.create, version: old.version + 1, at: at}
			if !exists {
				e.Created, k.create = true, int64(next)
			}
			m.keys[o.key] = k
			kv.CreateRevision, kv.Version, kv.Value = k.create, k.version, o.value
		}
		e.KeyValue = marshal(kv)
		m.values[at] = e.KeyValue
		made = append(made, e)
	}
	if len(made) > 0 {
		m.revision = next
		m.events = append(m.events, made...)
	}
	return made
}

// batch makes one batch of several transactions.
func (m *model) batch(txns ...[]op) *proto.EventBatch {
	b := &proto.EventBatch{}
	for _, ops := range txns {
		b.Events = append(b.Events, m.txn(ops...)...)
	}
	b.Revision, b.Compacted = m.revision, m.compacted
	return b
}

func marshal(m pb.Message) []byte {
	b, err := pb.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func (m *model) Position() (proto.Revision, proto.Revision) {
	revision, compacted := m.revision, m.compacted
	if m.race != nil {
		m.race()
	}
	return revision, compacted
}

func (m *model) Events(r Range, from, through proto.Revision, bytes int) ([]proto.Event, proto.Revision, error) {
	m.reads++
	if m.busy > 0 {
		m.busy--
		return nil, from, nil
	}
	if from < m.compacted {
		return nil, 0, fmt.Errorf("model at %d: %w", m.compacted, ErrCompacted)
	}
	var list []proto.Event
	first := sort.Search(len(m.events), func(i int) bool { return m.events[i].Version.Main >= from })
	for i := first; i < len(m.events) && m.events[i].Version.Main <= through; i++ {
		e := &m.events[i]
		if bytes <= 0 && list[len(list)-1].Version.Main != e.Version.Main {
			return list, e.Version.Main, nil
		}
		if r.Contains(e.Key) {
			list = append(list, *e)
			bytes -= e.Size()
		}
	}
	return list, through + 1, nil
}

func (m *model) Value(v proto.Version) ([]byte, bool) {
	kv, ok := m.values[v]
	if by, replaced := m.newer[v]; replaced && by <= m.compacted {
		return nil, false
	}
	return kv, ok
}
