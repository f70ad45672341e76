//go:build !linux

package node

import (
	"errors"
	"time"
)

// coarsenTimers is for Linux; elsewhere timers stay as they are.
func coarsenTimers() (time.Duration, error) { return 0, errors.ErrUnsupported }
