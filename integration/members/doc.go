// Package members holds the tests of changes of the members that go further than one call: what becomes of a member
// that has lost its quorum to a voter that never comes, and of its data; what a learner that never comes costs; and
// that every request for a change is answered, whatever happens to the member. etcd stands beside troupe where it can.
//
// The calls in any order are compared by integration/differential, their files by integration/files.
//
// The package has no code outside its tests.
package members
