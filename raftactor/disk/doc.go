// Package disk is the seam between the log with its snapshot files and the file system: the interface, the real
// implementation, and the list of all the places where something is made durable.
//
// It knows nothing of logs. It is apart from raftactor so that the simulated disk (disktest) can be used by
// raftactor's own tests.
package disk
