package actors

import "fmt"

// Must panics when a condition that the code relies on does not hold. It stays on in production: a member that goes on
// with a broken invariant can damage the others. The text is formatted only on failure, but arguments that are not
// pointers or constants are boxed at every call: on a hot path test the condition first (if !cond { Must(false, ...) })
// or pass none.
func Must(cond bool, format string, args ...any) {
	if !cond {
		panic(fmt.Sprintf("invariant broken: "+format, args...))
	}
}
