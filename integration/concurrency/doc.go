// Package concurrency holds the tests of locks and elections: clientv3's own concurrency package (with software
// transactional memory) against troupe, and the Lock and Election services, alone and beside etcd's. It has no code
// outside its tests.
package concurrency
