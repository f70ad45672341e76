// Package files holds the tests of what lies on disk: etcd's own tools read the directory of a stopped troupe, etcd
// starts on it and serves the same data, and troupe starts on what etcd wrote, after a clean stop and after kill -9. It
// has no code outside its tests.
package files
