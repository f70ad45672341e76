package main

import (
	"cmp"
	"fmt"
	"time"

	"troupe/cmd/node"
)

// options is everything the command line can set: the member's configuration and what belongs to the process alone.
type options struct {
	node  node.Config
	log   logOptions
	gates gateValues
	alone aloneOptions

	configFile string
	version    bool

	// metrics is "basic" or "extensive"; it becomes node.Config.ExtensiveMetrics.
	metrics string
	// set holds the flags that were given, by command line, environment or file.
	set map[string]bool
	// warnings and notes are to be logged once there is a log: what was ignored, and where values came from.
	warnings []string
	notes    []note
}

// note is a line at level info.
type note struct {
	text  string
	facts []fact
}

// fact is a key of a log line with its value.
type fact struct{ key, value string }

func defaultOptions() *options {
	return &options{
		node:    node.Default(),
		log:     defaultLogOptions(),
		alone:   defaultAlone(),
		metrics: "basic",
		set:     map[string]bool{},
	}
}

func (o *options) warn(format string, args ...any) {
	o.warnings = append(o.warnings, fmt.Sprintf(format, args...))
}

// finish turns what was read into a configuration that node can run, and says what is wrong with it.
func (o *options) finish() error {
	if err := o.checkChoices(); err != nil {
		return err
	}
	o.fill()
	if o.set["v2-deprecation"] {
		o.warn("--v2-deprecation is ignored, as by etcd: there is no v2 store; leave it out")
	}
	if o.set["log-rotation-config-json"] && !o.log.rotate {
		o.warn("--log-rotation-config-json has no effect without --enable-log-rotation")
	}
	o.warnOfWaiting()
	return o.node.Validate()
}

// fill puts defaults where zero or nothing was given, as etcd has it for these flags.
func (o *options) fill() {
	c, standard := &o.node, node.Default()
	if o.set["listen-client-urls"] && !o.set["advertise-client-urls"] {
		c.AdvertiseClientURLs = nil
	}
	c.ExtensiveMetrics = o.metrics == "extensive"
	gates := o.gates.effective()
	c.Features = gates
	c.LeaseCheckpoint, c.StopServingOnDefragment = gates[gateCheckpoint], gates[gateStopOnDefragment]
	c.WaitOnRenew, c.PriorityRequest = !gates[gateFastKeepAlive], gates[gatePriority]
	if !o.set["initial-cluster"] {
		c.Complete()
	}
	fillZero(&c.SnapshotCount, standard.SnapshotCount)
	fillZero(&c.BatchInterval, standard.BatchInterval)
	fillZero(&c.BatchLimit, standard.BatchLimit)
	fillZero(&c.CompactionBatchLimit, standard.CompactionBatchLimit)
	fillZero(&c.CompactionSleep, standard.CompactionSleep)
	fillZero(&c.WatchProgressInterval, standard.WatchProgressInterval)
}

// fillZero gives a field its default where zero means "the default".
func fillZero[T int | uint64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// checkChoices refuses a word that is not among the words a flag knows.
func (o *options) checkChoices() error {
	if err := o.log.validate(); err != nil {
		return err
	}
	if err := oneOf("metrics", cmp.Or(o.metrics, "basic"), []string{"basic", "extensive"}); err != nil {
		return err
	}
	if err := o.gates.validate(); err != nil {
		return err
	}
	return o.alone.validate()
}
