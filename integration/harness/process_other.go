//go:build !linux

package harness

import (
	"os"
	"syscall"
)

// childAttributes are empty where the kernel cannot tie a child's life to its parent's.
func childAttributes() *syscall.SysProcAttr { return nil }

// shrinkPipe does nothing where pipes have one size.
func shrinkPipe(*os.File) {}

// frozen cannot be known here.
func frozen(int) error { return nil }
