package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"troupe/cmd/node"
)

// printVersion prints etcd's four lines, which tools parse, and then troupe's own.
func printVersion(w io.Writer) {
	fmt.Fprintf(w, "etcd Version: %s\n", node.CompatibleVersion)
	fmt.Fprintf(w, "Git SHA: %s\n", buildRevision())
	fmt.Fprintf(w, "Go Version: %s\n", runtime.Version())
	fmt.Fprintf(w, "Go OS/Arch: %s/%s\n", runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(w, "troupe Version: %s\n", node.Version)
}

// buildRevision is the commit the binary was built from, as far as the toolchain recorded it.
func buildRevision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 7 {
			return s.Value[:7]
		}
	}
	return "unknown"
}
