// Package diskfull runs the real program on real file systems that fill up: what goes on without space, what is refused
// and with which words, that nothing acknowledged is lost, and that all goes on by itself when there is space again.
//
// The file systems are small and in memory, and mounting them needs a right that not everybody has; without it the
// tests are skipped and say so. Files named wal_* are about the disk of the log, backend_* about that of the database.
package diskfull
