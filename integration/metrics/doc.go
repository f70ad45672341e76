// Package metrics holds the tests that compare /metrics with the official etcd's: both servers get the same requests,
// and then every metric that etcd has must be there with its type, labels and buckets, and count the same. Whatever may
// differ is in a list with its reason (differences_test.go). Other tests go through what the published alert rules and
// dashboards read, and bound what clients can make /metrics hold and cost.
//
// The package has no code outside its tests.
package metrics
