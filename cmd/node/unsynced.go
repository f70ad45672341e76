package node

import "troupe/raftactor/disk"

// unsyncedDisk is a disk without fsync, for --unsafe-no-fsync.
type unsyncedDisk struct{ disk.Disk }

func (d unsyncedDisk) Open(path string) (disk.File, error) { return unsynced(d.Disk.Open(path)) }

func (d unsyncedDisk) Create(path string) (disk.File, error) { return unsynced(d.Disk.Create(path)) }

func (d unsyncedDisk) SyncDir(string, disk.Point) error { return nil }

type unsyncedFile struct{ disk.File }

func (f unsyncedFile) Sync(disk.Point) error { return nil }

func unsynced(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}
