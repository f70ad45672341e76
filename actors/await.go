package actors

import "context"

// Await waits for an answer that the actors of ref's System owe, as Reply.Wait does. Under a seeded dispatcher it steps
// until the answer is there, and gives ErrStopped when nothing is left to run that could give it. Not for actors.
func Await[M, R any](ctx context.Context, ref Ref[M], reply Reply[R]) (R, error) {
	if ref.b == nil || ref.b.sys.step == nil {
		return reply.Wait(ctx)
	}
	for {
		if value, err, done := reply.Poll(); done {
			return value, err
		}
		if !ref.b.sys.step() {
			var none R
			return none, ErrStopped
		}
	}
}
