package raftactor

import "troupe/raftactor/disk"

// Disk is the seam to the file system; see package disk for its contract.
type Disk = disk.Disk

// OSDisk gives the operating system's file system.
func OSDisk() Disk { return disk.OS() }

// segmentSizer is implemented by a Disk that wants segments of another size than etcd's: the simulated one, so that
// thousands of crashes, segment cuts among them, fit into seconds.
type segmentSizer interface {
	// SegmentBytes is the size at which a segment is cut, in bytes.
	SegmentBytes() int64
}

// segmentBytesOf gives the segment size to use on d.
func segmentBytesOf(d Disk) int64 {
	if s, ok := d.(segmentSizer); ok {
		return s.SegmentBytes()
	}
	return segmentBytes
}
