package actors

import "reflect"

// Lane says which of an actor's two queues a message joins. Actors without Lanes have one queue and ignore it.
type Lane uint8

// The two lanes. Control is taken before Normal, but for at most a bounded number of turns in a row.
const (
	Control Lane = iota
	Normal
)

// String gives the value of the metrics label.
func (l Lane) String() string {
	if l == Control {
		return "control"
	}
	return "normal"
}

// Sized is implemented by messages that know their size. Others count as 64 bytes.
type Sized interface {
	// Size is the number of bytes the message counts for in a Bound. It is asked once, before admission, by the sender's
	// goroutine; a coalesced message is asked again after each merge, under the mailbox lock.
	Size() int
}

// Aborter is implemented by every message that carries a Reply.
type Aborter interface {
	// Abort answers the request with the error. It is called at most once, by the mailbox, for a message that was admitted
	// and will not be handled (ErrStopped) or that a Drop lane discarded (ErrDropped). After a panic the messages of the
	// panicked turn are aborted too, answered or not: Reply sorts that out by the error, so it must be passed on as it
	// is or wrapped. Abort must only complete replies and Tell.
	Abort(err error)
}

// abort answers m if it can be answered.
func abort[M any](m M, err error) (was bool) {
	a, ok := any(m).(Aborter)
	if ok {
		a.Abort(err)
	}
	return ok
}

// traits is what has to be known about a message type to treat it without allocating.
type traits struct {
	// asksSize is true when a message may be Sized. For a plain value type that is not, the question would box the value.
	asksSize bool
	// boxesFree is true when conversion to an interface does not allocate: interfaces and pointers.
	boxesFree bool
	name      string
}

func traitsOf[M any]() traits {
	t := reflect.TypeFor[M]()
	free := t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer
	return traits{
		asksSize:  t.Kind() == reflect.Interface || t.Implements(reflect.TypeFor[Sized]()),
		boxesFree: free,
		name:      t.String(),
	}
}

// sizeOf is what m counts for; negative sizes are taken as the default.
func sizeOf[M any](t *traits, m M) int64 {
	if t.asksSize {
		if s, ok := any(m).(Sized); ok {
			if n := s.Size(); n >= 0 {
				return int64(n)
			}
		}
	}
	return messageBytesDefault
}
