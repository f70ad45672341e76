// Package daemon holds the tests of troupe as a process: flags, environment and configuration file, start and stop,
// readiness, log lines, and the pages on its client port. It has no code outside its tests.
package daemon
