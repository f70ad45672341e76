//go:build !linux

package storeactor

import "os"

// syncData makes the data of a file durable.
func syncData(file *os.File) error { return file.Sync() }
