package actors

import "errors"

// What Tell, Offer, Spawn and Reply report. None of them knows the wire; the gateway maps them.
var (
	// ErrFull says that the lane is at its bound in messages or in bytes. The sender still owns the message.
	ErrFull = errors.New("actors: mailbox full")
	// ErrStopped says that the actor has ended, is ending, or never was. As an answer it means that the request was
	// admitted and then abandoned; whether it had an effect is unknown only if its turn had begun.
	ErrStopped = errors.New("actors: actor stopped")
	// ErrDropped is the answer of a message that a Drop lane discarded because it was full.
	ErrDropped = errors.New("actors: message dropped by a full mailbox")
	// ErrNameTaken is returned by Spawn when a living actor has that name.
	ErrNameTaken = errors.New("actors: name taken")
	// ErrSpecInvalid is returned by Spawn for a Spec that lacks a name, a behaviour or a policy with positive bounds.
	ErrSpecInvalid = errors.New("actors: spec invalid")
	// ErrPanicked is what Spec.Stopped gets (wrapped, with the reason) when a panic ended the actor.
	ErrPanicked = errors.New("actors: actor panicked")
)

// turnLost is the error with which the messages of a panicked turn are aborted. Nobody knows how far the turn had come,
// so some of them may have been answered already and others may have been handed on together with their reply. Reply
// recognises this error: it does not complete an answered request again, and ignores an answer that comes later.
type turnLost struct{}

func (turnLost) Error() string { return "actors: the actor panicked while it handled this message" }

// Is makes a lost turn look like any other message abandoned by a stopped actor.
func (turnLost) Is(target error) bool { return target == ErrStopped }

var errTurnLost error = turnLost{}
