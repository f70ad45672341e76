//go:build !linux

package storeactor

// boltMmapFlags is zero where the kernel has no read-ahead for mappings.
const boltMmapFlags = 0
