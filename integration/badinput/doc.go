// Package badinput holds the tests that send troupe what no honest client sends: unknown enum values, empty unions,
// oversize messages, broken metadata, half-open connections, random bytes. Each must get a clear error, etcd's own
// where etcd has one; nothing may be lost, the server must go on, and it must start again afterwards, which shows that
// nothing undecodable went into the log. The package has no code outside its tests.
package badinput
