package disk

import (
	"errors"
	"syscall"
)

// Errors of this package.
var (
	// ErrLocked says that another open file holds the lock.
	ErrLocked = errors.New("disk: the file is in use by another process")
)

// Full reports whether the error says that the disk, or the quota of it, has no room. What was asked for has not been
// done then, or only in part.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
