package main

import (
	"strings"
	"testing"
)

func TestGates_AreDecidedAsByEtcd(t *testing.T) {
	for _, c := range []struct {
		text string
		name string
		want bool
	}{
		{"", "FastLeaseKeepAlive", true},
		{"", gateCheckpoint, false},
		{"LeaseCheckpoint=true", gateCheckpoint, true},
		{"LeaseCheckpoint=true,LeaseCheckpoint=false", gateCheckpoint, false},
		{" LeaseCheckpoint = t , ", gateCheckpoint, true},
		{"AllAlpha=true", "InitialCorruptCheck", true},
		{"AllAlpha=true,PriorityRequest=false", "TxnModeWriteWithSharedBuffer", true},
		{"AllBeta=false", "TxnModeWriteWithSharedBuffer", false},
	} {
		o, err := parse([]string{"--feature-gates=" + c.text}, nil)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
		} else if got := o.node.Features[c.name]; got != c.want {
			t.Errorf("%q: %s is %t", c.text, c.name, got)
		}
	}
	o, err := parse([]string{"--feature-gates=LeaseCheckpoint=true,StopGRPCServiceOnDefrag=true"}, nil)
	if err != nil || !o.node.LeaseCheckpoint || !o.node.StopServingOnDefragment || o.node.WaitOnRenew ||
		o.node.PriorityRequest {
		t.Errorf("gates do not reach the member: %+v, %v", o.node, err)
	}
	for _, text := range []string{"FastLeaseKeepAlive=false,PriorityRequest=true", "AllAlpha=true,AllBeta=false"} {
		o, err := parse([]string{"--feature-gates=" + text}, nil)
		if err != nil || !o.node.WaitOnRenew || !o.node.PriorityRequest {
			t.Errorf("%s does not reach the member: %+v, %v", text, o.node, err)
		}
	}
}

func TestGates_WhatCannotBeHadIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"LeaseChekpoint=true":             "unrecognized feature gate: LeaseChekpoint; did you mean LeaseCheckpoint?",
		"LeaseCheckpoint":                 "missing bool value for LeaseCheckpoint",
		"LeaseCheckpoint=yes":             "invalid value of LeaseCheckpoint=yes, err: ",
		"LeaseCheckpointPersist=true":     "requires enabling feature gate LeaseCheckpoint",
		"AllAlpha=true,LeaseCheckpoint=0": "--feature-gates=AllAlpha=true,LeaseCheckpoint=0 turns the first on",
	} {
		if _, err := parse([]string{"--feature-gates", text}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not contain %q", text, err, want)
		}
	}
}
