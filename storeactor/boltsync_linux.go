package storeactor

import (
	"os"
	"syscall"
)

// syncData makes the data of a file durable without its times.
func syncData(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
