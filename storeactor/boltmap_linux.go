package storeactor

import "syscall"

// boltMmapFlags asks the kernel to read the file ahead when it is mapped: a start walks all of it anyway, and bbolt
// tells the kernel to expect random access, which would make that walk one disk read per page.
const boltMmapFlags = syscall.MAP_POPULATE
