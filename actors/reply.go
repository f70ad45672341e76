package actors

import (
	"context"
	"errors"
	"sync"
)

// replyState says who has completed a reply.
type replyState uint8

const (
	replyOpen replyState = iota
	replyAnswered
	// replyLost: the turn that held the request panicked and the mailbox answered for it. The behaviour may have handed
	// the reply on before; the answer that may still come is ignored.
	replyLost
)

// reply is the slot behind a Reply.
type reply[R any] struct {
	mu     sync.Mutex
	state  replyState
	value  R
	err    error
	waiter chan struct{}  // made by Wait, closed on completion
	f      func(R, error) // ReplyTo only
}

// Reply is the right to answer one request once. It is one pointer, a field of the request message. Whoever receives
// the message owns it and must complete it exactly once, now or later, or hand it on; a second completion panics.
type Reply[R any] struct{ p *reply[R] }

// NewReply makes a reply for a goroutine that will Wait, or for a seeded test that will Poll.
func NewReply[R any]() Reply[R] { return Reply[R]{new(reply[R])} }

// ReplySlot is room for one reply inside of something larger, a request for instance, which then is one piece with it.
// It must not be copied.
type ReplySlot[R any] struct{ reply reply[R] }

// Reply is NewReply in this slot. It is called once: a second reply would be the same one.
func (s *ReplySlot[R]) Reply() Reply[R] { return Reply[R]{&s.reply} }

// ReplyTo makes a reply for an actor: f runs once, in the answerer's turn, and must only Tell. It is how an actor asks
// another one without waiting: f tells the answer to the asker as a message of the asker's own protocol.
func ReplyTo[R any](f func(R, error)) Reply[R] {
	Must(f != nil, "ReplyTo needs a function")
	return Reply[R]{&reply[R]{f: f}}
}

// Valid is false for the zero Reply, which means that nobody wants an answer.
func (r Reply[R]) Valid() bool { return r.p != nil }

// Send answers with a value, which belongs to the receiver from then on. No-op on a zero Reply.
func (r Reply[R]) Send(v R) { r.complete(v, nil, replyAnswered) }

// Fail answers with an error. No-op on a zero Reply.
func (r Reply[R]) Fail(err error) {
	if r.p == nil {
		return
	}
	Must(err != nil, "a request was failed without an error")
	state := replyAnswered
	if errors.Is(err, errTurnLost) {
		state = replyLost
	}
	var none R
	r.complete(none, err, state)
}

func (r Reply[R]) complete(v R, err error, state replyState) {
	p := r.p
	if p == nil {
		return
	}
	p.mu.Lock()
	if p.state != replyOpen {
		harmless := p.state == replyLost || state == replyLost
		p.mu.Unlock()
		Must(harmless, "a request was answered twice")
		return
	}
	p.state, p.err = state, err
	f := p.f
	p.f = nil
	if f == nil {
		p.value = v
		if p.waiter != nil {
			close(p.waiter)
		}
	}
	p.mu.Unlock()
	if f != nil {
		f(v, err)
	}
}

// Wait waits for the answer. Only for goroutines that are not actors. When ctx ends first it returns
// context.Cause(ctx); the request may still be executed, and Wait may be called again.
func (r Reply[R]) Wait(ctx context.Context) (R, error) {
	p := r.p
	Must(p != nil, "Wait on a zero Reply")
	p.mu.Lock()
	if p.state != replyOpen {
		defer p.mu.Unlock()
		return p.value, p.err
	}
	if p.waiter == nil {
		p.waiter = make(chan struct{})
	}
	answered := p.waiter
	p.mu.Unlock()
	select {
	case <-answered:
		return p.value, p.err // written before the channel was closed, never again after
	case <-ctx.Done():
		var none R
		return none, context.Cause(ctx)
	}
}

// Poll gives the answer if there is one. It is for seeded tests, where the waiting goroutine is the one that runs
// actors.
func (r Reply[R]) Poll() (R, error, bool) {
	p := r.p
	Must(p != nil, "Poll on a zero Reply")
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value, p.err, p.state != replyOpen
}
