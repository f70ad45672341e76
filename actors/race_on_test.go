//go:build race

package actors_test

const raceEnabled = true
