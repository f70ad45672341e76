package sim

import (
	"fmt"
	"hash"
	"hash/fnv"
)

// trace is a hash over everything that happened in a run.
type trace struct{ sum hash.Hash64 }

func newTrace() *trace { return &trace{fnv.New64a()} }

func (t *trace) add(parts ...any) { fmt.Fprintln(t.sum, parts...) }

func (t *trace) bytes(b []byte) { _, _ = t.sum.Write(b) }
