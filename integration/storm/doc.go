// Package storm lets everything that a client can do happen to one member at once, the rude ways of ending it included,
// disconnects, and then looks whether anything is left: gauges, actors, goroutines, file descriptors.
//
// A first, short storm makes the member create what it keeps for good (workers, pools). The base is what it shows after
// that. Then comes the storm that counts.
//
// Gauges fall in three classes, listed in gauges_test.go:
//
//   - those that must be zero when nobody is connected and no lease is left;
//   - those that follow the data or the process, each kind with the reason why it may differ;
//   - all others, also those that nobody has thought of yet: they must be back at the base.
//
// `just storm minutes=30` is the long form: storms of a minute, each followed by the same look, against the same base.
//
// The package has no code outside its tests.
package storm
