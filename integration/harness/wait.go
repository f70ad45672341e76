package harness

import (
	"context"
	"testing"
	"time"
)

// pollInterval is how often Eventually looks: short against every time limit in the tests, long against the look.
const pollInterval = 10 * time.Millisecond

// Eventually waits until check gives nil, and fails the test with its last error when the limit passes.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-time.After(pollInterval)
	}
}

// Context gives a context that ends with the test or after the limit.
func Context(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
