package raftactor

import (
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"

	"troupe/proto"
)

// The versions of the cluster, which the leader keeps: the cluster version follows the programs that its members run,
// upwards by itself and downwards when a downgrade is enabled. This file decides; versionsactor.go asks and proposes.

// clusterVersionLeast is the cluster version while not all members can be asked: etcd's, which every member can serve.
const clusterVersionLeast = "3.0.0"

// versionFacts is what a decision rests on: one published membership, and the programs of its members.
type versionFacts struct {
	// cluster and target are the cluster version, and the version that a downgrade goes to; empty: none.
	cluster, target string
	// lowest and highest are the lowest and the highest version that a member runs, as "major.minor.0"; empty while one
	// of them is not known.
	lowest, highest string
}

// versionFactsOf gathers the facts. serverVersion gives the version of a member's program, "" while it is not known.
func versionFactsOf(m *proto.Membership, serverVersion func(*proto.Member) string) versionFacts {
	f := versionFacts{cluster: m.ClusterVersion, target: m.DowngradeTarget}
	for i := range m.Members {
		version := withoutPatch(serverVersion(&m.Members[i]))
		if version == "" {
			f.lowest, f.highest = "", ""
			return f
		}
		if f.lowest == "" || versionLess(version, f.lowest) {
			f.lowest = version
		}
		if f.highest == "" || versionLess(f.highest, version) {
			f.highest = version
		}
	}
	return f
}

// withoutPatch gives "major.minor.0" of a version, "" of what is none.
func withoutPatch(version string) string {
	major, minor := majorMinor(version)
	if major < 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d.0", major, minor)
}

// oneBelow reports whether a version is the minor version right below another: what a downgrade may go to.
func oneBelow(version, of string) bool {
	major, minor := majorMinor(of)
	lower, lowerMinor := majorMinor(version)
	return lower == major && lowerMinor == minor-1
}

// versionStep is what there is to do about the versions.
type versionStep uint8

const (
	// versionsSettled: nothing.
	versionsSettled versionStep = iota
	// versionSet: set the cluster version to the target of the decision.
	versionSet
	// downgradeEnd: all members run the version that the downgrade goes to, so it is over.
	downgradeEnd
	// downgradeStuck: the programs of the members are not one minor version above the target; an operator must cancel.
	downgradeStuck
)

// decideVersions says what to do, as etcd's monitor does, and the version that it is about.
func decideVersions(f versionFacts) (versionStep, string) {
	switch {
	case f.cluster == "" && f.lowest == "":
		return versionSet, clusterVersionLeast
	case f.cluster == "":
		return versionSet, f.lowest
	case f.lowest == "":
		return versionsSettled, ""
	case f.target != "" && f.lowest == f.target && f.highest == f.target:
		return downgradeEnd, f.target
	case f.target == f.cluster:
		return versionsSettled, ""
	case f.target == "" && versionLess(f.cluster, f.lowest):
		return versionSet, f.lowest
	case f.target == "":
		return versionsSettled, ""
	case oneBelow(f.target, f.cluster) && (f.target == f.lowest || oneBelow(f.target, f.lowest)):
		return versionSet, f.target
	}
	return downgradeStuck, f.target
}

// versionKeeper is the core of the versions actor: when to decide, and what is under way. It is a state machine of its
// own clock: `now` is the time since its start.
type versionKeeper struct {
	// endPause is the least time between two looks for the end of a downgrade.
	endPause time.Duration
	endAt    time.Duration
	// asked is a proposal that is not answered. After one that failed, none is made before retryAt: what refuses one at
	// once, as raft does while the disk is stalled, would refuse the next one too.
	asked   bool
	retryAt time.Duration
	// stuck is the target of the downgrade that was found stuck last, so that it is said once.
	stuck string
}

// failed takes a failed end of a proposal.
func (k *versionKeeper) failed(now time.Duration) { k.asked, k.retryAt = false, now+versionsRetryPause }

// busy reports whether a proposal is out or has just failed, so that none is made.
func (k *versionKeeper) busy(now time.Duration) bool { return k.asked || now < k.retryAt }

// look gives the request to propose, nil for none, and the step that led to it. Nothing is proposed while this member
// does not lead or is busy.
func (k *versionKeeper) look(now time.Duration, f versionFacts, leads bool) (versionStep,
	*etcdserverpb.InternalRaftRequest) {
	if !leads || k.busy(now) {
		return versionsSettled, nil
	}
	step, version := decideVersions(f)
	if step != downgradeStuck {
		k.stuck = ""
	}
	switch step {
	case versionSet:
		k.asked = true
		return step, &etcdserverpb.InternalRaftRequest{
			ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: version},
		}
	case downgradeEnd:
		if now < k.endAt {
			return versionsSettled, nil
		}
		k.asked, k.endAt = true, now+k.endPause
		return step, &etcdserverpb.InternalRaftRequest{DowngradeInfoSet: &membershippb.DowngradeInfoSetRequest{}}
	case downgradeStuck:
		if k.stuck == version {
			return versionsSettled, nil
		}
		k.stuck = version
	}
	return step, nil
}
