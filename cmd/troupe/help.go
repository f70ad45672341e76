package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// helpWidth is the width of the lists of names in the help text.
const helpWidth = 100

// printHelp lists every flag: those of this version in their groups, and what becomes of the others that etcd has.
func printHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: troupe [flags]

Starts one member of a cluster that speaks etcd's v3 protocol. The flags are etcd's. Each may be given as
--flag=value, in the environment as TROUPE_FLAG or ETCD_FLAG (capitals, _ for -), or in a file (--config-file),
which then replaces all others.
`)
	for _, g := range flagGroups {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		g.declare(fs, defaultOptions())
		fmt.Fprintf(w, "\n%s:\n", g.title)
		fs.VisitAll(func(f *flag.Flag) {
			fmt.Fprintf(w, "  --%s %s\n", f.Name, shown(f.DefValue))
			for line := range strings.SplitSeq(f.Usage, "\n") {
				fmt.Fprintf(w, "      %s\n", line)
			}
		})
	}
	fmt.Fprint(w, "\nNot in this version yet, accepted with this value only:\n")
	for _, name := range sortedKeys(laterFlags) {
		fmt.Fprintf(w, "  --%s %s\n", name, shown(laterFlags[name]))
	}
	fmt.Fprint(w, "\nNot provided:\n")
	for _, name := range sortedKeys(notProvided) {
		fmt.Fprintf(w, "  --%s\n      %s\n", name, notProvided[name])
	}
	for _, name := range sortedKeys(subcommands) {
		fmt.Fprintf(w, "  %s\n      %s\n", name, subcommands[name])
	}
	fmt.Fprint(w, "\nTaken and ignored, as by etcd:\n")
	writeNames(w, ignoredFlags)
}

// writeNames writes names in lines of bounded width.
func writeNames(w io.Writer, names []string) {
	line := " "
	for _, name := range names {
		if len(line)+len(name)+3 > helpWidth {
			fmt.Fprintln(w, line)
			line = " "
		}
		line += " --" + name
	}
	fmt.Fprintln(w, line)
}
