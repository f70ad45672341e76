package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// gate is one of etcd's feature gates.
type gate struct {
	name  string
	stage string
	on    bool // by default
}

const (
	stageAlpha = "ALPHA"
	stageBeta  = "BETA"

	gateAllAlpha          = "AllAlpha"
	gateAllBeta           = "AllBeta"
	gateCheckpoint        = "LeaseCheckpoint"
	gateCheckpointPersist = "LeaseCheckpointPersist"
	gateFastKeepAlive     = "FastLeaseKeepAlive"
	gatePriority          = "PriorityRequest"
	gateStopOnDefragment  = "StopGRPCServiceOnDefrag"
)

// knownGates are those of etcd 3.7. CompactHashCheck, InitialCorruptCheck and SetMemberLocalAddr are about other
// members, TxnModeWriteWithSharedBuffer about how etcd copies: both values are fine.
var knownGates = []gate{
	{gateAllAlpha, stageAlpha, false},
	{gateAllBeta, stageBeta, false},
	{"CompactHashCheck", stageAlpha, false},
	{gateFastKeepAlive, stageBeta, true},
	{"InitialCorruptCheck", stageAlpha, false},
	{gateCheckpoint, stageAlpha, false},
	{gateCheckpointPersist, stageAlpha, false},
	{gatePriority, stageAlpha, false},
	{"SetMemberLocalAddr", stageAlpha, false},
	{gateStopOnDefragment, stageAlpha, false},
	{"TxnModeWriteWithSharedBuffer", stageBeta, true},
}

// gateValues is --feature-gates: Name=true,Name=false. The last value of a name counts.
type gateValues struct {
	text  string
	given map[string]bool
}

// Set implements flag.Value. Its errors are etcd's, with the remedy.
func (v *gateValues) Set(s string) error {
	given := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, word, ok := strings.Cut(part, "=")
		name, word = strings.TrimSpace(name), strings.TrimSpace(word)
		if !ok {
			return fmt.Errorf("missing bool value for %s: write %s=true or %s=false", name, name, name)
		}
		if !slices.ContainsFunc(knownGates, func(g gate) bool { return g.name == name }) {
			return fmt.Errorf("unrecognized feature gate: %s%s", name, didYouMeanOneOf(name, gateNames()))
		}
		on, err := strconv.ParseBool(word)
		if err != nil {
			return fmt.Errorf("invalid value of %s, err: %w: give true or false", part, err)
		}
		given[name] = on
	}
	v.text, v.given = s, given
	return nil
}

// String implements flag.Value.
func (v *gateValues) String() string { return v.text }

func gateNames() []string {
	names := make([]string, len(knownGates))
	for i, g := range knownGates {
		names[i] = g.name
	}
	return names
}

// effective is the state of every gate: what was given, else what AllAlpha or AllBeta say, else the default.
func (v *gateValues) effective() map[string]bool {
	state := map[string]bool{}
	for _, g := range knownGates {
		state[g.name] = g.on
		all := gateAllAlpha
		if g.stage == stageBeta {
			all = gateAllBeta
		}
		if on, ok := v.given[all]; ok && g.name != all {
			state[g.name] = on
		}
	}
	maps.Copy(state, v.given)
	return state
}

// validate refuses combinations that etcd refuses.
func (v *gateValues) validate() error {
	state := v.effective()
	if state[gateCheckpointPersist] && !state[gateCheckpoint] {
		return fmt.Errorf("enabling feature gate LeaseCheckpointPersist requires enabling feature gate LeaseCheckpoint: "+
			"--feature-gates=%s turns the first on and the second off", v.text)
	}
	return nil
}

// help lists the gates.
func (v *gateValues) help() string {
	var b strings.Builder
	b.WriteString("Name=true or Name=false, comma-separated:")
	for _, g := range knownGates {
		fmt.Fprintf(&b, "\n%s (%s, default %t)", g.name, g.stage, g.on)
	}
	return b.String()
}
