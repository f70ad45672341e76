// Package downgrade compares what troupe and etcd answer and say of themselves through a downgrade of the cluster, step
// by step. That the directory is then served by the version below is shown in integration/files. It has no code outside
// its tests.
package downgrade
