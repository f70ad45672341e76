package differential

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// A difference is kept as the script that was printed, so what is printed must be what was run.
func TestScript_WhatIsPrintedIsRead(t *testing.T) {
	w := &world{now: 20, compact: 7}
	rapid.Check(t, func(rt *rapid.T) {
		want := steps(w).Draw(rt, "step")
		got, err := parseStep(want.String())
		if err != nil {
			rt.Fatal(err)
		}
		same := want.request == nil && got.request == nil
		if want.request != nil && got.request != nil {
			same = proto.Equal(want.request, got.request)
		}
		got.request = want.request
		if !same || got != want {
			rt.Fatalf("%v is read as %v", want, got)
		}
	})
}

// The servers of a run have had other scripts before: revisions travel both ways unharmed, and what is no revision
// stays.
func TestScript_RevisionsAreShiftedThereAndBack(t *testing.T) {
	w := &world{now: 20, compact: 7}
	rapid.Check(t, func(rt *rapid.T) {
		s := steps(w).Draw(rt, "step")
		if s.request == nil {
			return
		}
		there := proto.Clone(s.request)
		shift(there, 1000)
		shift(there, -1000)
		if !proto.Equal(there, s.request) {
			rt.Fatalf("%v came back as %v", s.request, there)
		}
	})
}
