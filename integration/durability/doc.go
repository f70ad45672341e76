// Package durability holds the test that kills the real server again and again under load and proves that nothing it
// acknowledged is lost, that its revision never goes back, and that watches resumed at their last revision see every
// event once. It has no code outside its tests.
//
// The normal run has few rounds; the long form is
//
//	go test ./integration/durability -durability.rounds=100 -timeout 30m
//
// or TROUPE_DURABILITY_ROUNDS=100 in the environment.
package durability
