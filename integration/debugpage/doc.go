// Package debugpage looks at the debug pages with a real browser: a headless Chromium opens them on a running member
// under load. Tests are skipped, with a message, where there is no Chromium (.ci/run installs one).
//
// Environment:
//
//	TROUPE_SCREENSHOTS  a directory into which the pictures in docs/screenshots are made anew
package debugpage
