// Package actorstest holds what tests of actors need: a seeded dispatcher, a clock moved by hand, and an actor that
// records what it is told.
package actorstest
