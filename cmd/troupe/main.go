// Command troupe is the daemon: one member of a cluster that speaks etcd's v3 protocol. It reads flags, environment and
// configuration file, sets up the log, and runs a node until it is told to stop.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"troupe/cmd/node"
)

// Exit codes: a command line that cannot be read is told apart from every other failure, as by etcd and the flag
// package.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

func run(args, environ []string, stdout, stderr io.Writer) int {
	if code, done := subcommand(args, stderr); done {
		return code
	}
	o, err := parse(args, environ)
	switch {
	case errors.Is(err, errHelp):
		printHelp(stdout)
		return exitOK
	case err != nil:
		return refuse(o, err, stderr)
	case o.version:
		printVersion(stdout)
		return exitOK
	}
	sink, err := newLogSink(&o.log)
	if err != nil {
		return refuse(o, err, stderr)
	}
	defer sink.close()
	level := newLogLevel(o.log.level)
	log := newLogger(sink, level)
	for _, n := range o.notes {
		line := log.Info()
		for _, f := range n.facts {
			line = line.Str(f.key, f.value)
		}
		line.Msg(n.text)
	}
	for _, w := range o.warnings {
		log.Warn().Msg(w)
	}
	return serve(o, sink, log, level)
}

// refuse says why nothing is started. What was warned of until then may be why.
func refuse(o *options, err error, stderr io.Writer) int {
	for _, w := range o.warnings {
		fmt.Fprintln(stderr, "troupe: warning: "+w)
	}
	fmt.Fprintln(stderr, "troupe: "+err.Error())
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailure
}

// serve runs the node until a signal or a failure ends it.
func serve(o *options, sink *logSink, log zerolog.Logger, level *logLevel) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// A second signal ends the process at once: whoever sends it does not want to wait for the drain, and a member may
	// end at any moment.
	context.AfterFunc(ctx, stop)
	seams := node.Seams{
		Log:        log,
		LogLevel:   level,
		LogDropped: sink.Dropped,
		BeforeExit: sink.close,
		Ready: func() {
			// An error only says that nobody supervises us through the socket.
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		},
	}
	if err := node.Run(ctx, o.node, seams); err != nil {
		log.Error().Err(err).Msg("troupe stops")
		return exitFailure
	}
	return exitOK
}

// subcommands are those of etcd that troupe does not have, with what to do instead.
var subcommands = map[string]string{
	"gateway":    "a TCP proxy in front of the members, HAProxy or envoy for instance, does the same",
	"grpc-proxy": "clients balance over all members themselves; a gRPC proxy such as envoy does the rest",
}

// subcommand answers the sub-commands of etcd that troupe does not have.
func subcommand(args []string, stderr io.Writer) (code int, done bool) {
	if len(args) == 0 || subcommands[args[0]] == "" {
		return 0, false
	}
	fmt.Fprintf(stderr, "troupe: the sub-command %q of etcd is not provided: %s\n", args[0], subcommands[args[0]])
	return exitUsage, true
}
