// Package flags holds the tests of the command line against the real etcd: that every flag of etcd is accounted for,
// that wrong values are refused in the same words, and that flags do what they say. It has no code outside its tests.
package flags
