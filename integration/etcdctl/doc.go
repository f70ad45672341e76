// Package etcdctl holds the test that runs etcdctl's commands against troupe and against the official etcd beside it,
// and compares what they print, byte for byte, after naming what must differ (normalise_test.go lists it). It has no
// code outside its tests.
package etcdctl
