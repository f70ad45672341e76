package proto

// The generated files are committed, so that building needs no protoc. To make them anew: put protoc and a
// protoc-gen-go of the version that go.mod names for google.golang.org/protobuf on the PATH, then `go generate
// ./proto`.
//
// The files are registered as troupe/proto/NAME.proto and not as NAME.proto: etcd's server module has a snap.proto and
// a lease.proto, and a program that links both modules would panic at init over equal names.
//
//go:generate protoc -Itroupe/proto=. --go_out=. --go_opt=module=troupe/proto troupe/proto/wal.proto troupe/proto/snap.proto troupe/proto/lease.proto troupe/proto/introspect.proto troupe/proto/concurrency.proto
