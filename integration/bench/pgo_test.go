package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime/pprof"
	"strings"
	"testing"
)

// The profile in the repository names functions, and no path of the machine it was taken on.
func TestPGO_ProfilesKeepFunctionsAndLosePaths(t *testing.T) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 0); err != nil {
		t.Fatal(err)
	}
	text := func(compressed []byte) string {
		r, err := gzip.NewReader(bytes.NewReader(compressed))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	const file, function = "/integration/bench/pgo_test.go", "TestPGO_ProfilesKeepFunctionsAndLosePaths"
	if before := text(profile.Bytes()); !strings.Contains(before, file) || !strings.Contains(before, function) {
		t.Fatal("the profile of this test has no path to lose")
	}
	stripped, err := withoutPaths(profile.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if after := text(stripped); strings.Contains(after, file) || !strings.Contains(after, function) {
		t.Errorf("paths or functions are wrong in %q", after)
	}
	if _, err := withoutPaths([]byte("no profile")); err == nil {
		t.Error("what is no profile is taken for one")
	}
}
