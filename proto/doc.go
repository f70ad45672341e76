// Package proto holds what travels between rooms and is owned by none of them: the id types, the immutable values that
// one actor hands to another, and the wire types that etcd keeps inside its server module and api/v3 therefore lacks.
//
// It imports nothing of ours and contains no behaviour beyond what a value needs to describe itself. Messages of the
// public API come from go.etcd.io/etcd/api/v3; defining them here a second time would panic at init.
package proto
