package watchactor

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// variant is one way to encode a batch: with previous values or without, and which kinds of event are left out. All
// watchers of a range with the same variant share one encoding.
type variant uint8

const (
	variantPrevious variant = 1 << iota // prev_kv
	variantNoPut                        // filter NOPUT
	variantNoDelete                     // filter NODELETE
	// variants is the number of different ones.
	variants = 1 << iota
)

// variantOf reads the options of a create request. Filters this server does not know are ignored, as etcd does.
func variantOf(r *etcdserverpb.WatchCreateRequest) variant {
	var v variant
	if r.PrevKv {
		v |= variantPrevious
	}
	for _, f := range r.Filters {
		switch f {
		case etcdserverpb.WatchCreateRequest_NOPUT:
			v |= variantNoPut
		case etcdserverpb.WatchCreateRequest_NODELETE:
			v |= variantNoDelete
		}
	}
	return v
}

// passes reports whether the variant keeps the event.
func (v variant) passes(e *proto.Event) bool {
	if e.Kind == proto.EventDelete {
		return v&variantNoDelete == 0
	}
	return v&variantNoPut == 0
}

// contents says what a set of events holds, so that variants that would come out equal share one encoding.
type contents struct{ puts, deletes, previous bool }

func (c *contents) add(e *proto.Event) {
	if e.Kind == proto.EventDelete {
		c.deletes = true
	} else {
		c.puts = true
	}
	if !e.Created && e.Previous != (proto.Version{}) {
		c.previous = true
	}
}

// reduce gives the variant whose encoding of these events equals that of v, and false if v leaves nothing of them.
func (c contents) reduce(v variant) (variant, bool) {
	if !c.previous {
		v &^= variantPrevious
	}
	if !c.puts {
		v &^= variantNoPut
	}
	if !c.deletes {
		v &^= variantNoDelete
	}
	empty := (!c.puts || v&variantNoPut != 0) && (!c.deletes || v&variantNoDelete != 0)
	return v, !empty
}
