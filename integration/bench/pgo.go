package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
)

// The profile that the compiler optimises the daemon with (cmd/troupe/default.pgo) is taken from what this program
// measures: the rows of the speed table, and the situations in which much is watched and read.
const (
	pgoScenarios = "a,e,h"
	pgoScale     = 0.3
	// stringTableField is the field of a profile with all its strings (profile.proto of pprof).
	stringTableField = 6
)

// makeProfile plays the load on troupe alone, and writes one profile of all of it to the file.
func makeProfile(o options) error {
	dir, err := os.MkdirTemp("", "troupe-pgo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.only, o.rounds, o.profiles, o.out = "troupe", 1, dir, ""
	if err := runRows(o); err != nil {
		return err
	}
	o.scenario, o.scale = pgoScenarios, pgoScale
	if err := runScenarios(o); err != nil {
		return err
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*", cpuProfilePrefix+"*"))
	if err != nil {
		return err
	}
	merged := filepath.Join(dir, "merged")
	merge := exec.Command("go", append([]string{"tool", "pprof", "-proto", "-output", merged}, parts...)...)
	if output, err := merge.CombinedOutput(); err != nil {
		return fmt.Errorf("merge %d profiles: %w\n%s", len(parts), err, output)
	}
	profile, err := os.ReadFile(merged)
	if err != nil {
		return err
	}
	if profile, err = withoutPaths(profile); err != nil {
		return fmt.Errorf("merged profile: %w", err)
	}
	return os.WriteFile(o.pgo, profile, 0o644)
}

// withoutPaths gives the compressed profile with file names instead of paths: those of the machine it was taken on
// concern nobody, and the compiler goes by names of functions.
func withoutPaths(profile []byte) ([]byte, error) {
	from, err := gzip.NewReader(bytes.NewReader(profile))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	to := gzip.NewWriter(&out)
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeField(raw)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		field := raw[:n]
		if number == stringTableField && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(field)
			text, _ := protowire.ConsumeBytes(field[tag:])
			if path.IsAbs(string(text)) {
				field = protowire.AppendTag(nil, number, kind)
				field = protowire.AppendString(field, path.Base(string(text)))
			}
		}
		if _, err := to.Write(field); err != nil {
			return nil, err
		}
		raw = raw[n:]
	}
	if err := to.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
