package raftactor

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"troupe/proto"
	"troupe/raftactor/disk"

	"go.etcd.io/raft/v3/raftpb"
	protobuf "google.golang.org/protobuf/proto"
)

const (
	snapSuffix = ".snap"
	// snapTemporaryPrefix is what etcd's start, as ours, removes as left over.
	snapTemporaryPrefix = "tmp"
)

// snapFileName gives the name of the file for a snapshot: term and index, so that names sort by age.
func snapFileName(term proto.Term, index proto.Index) string {
	return fmt.Sprintf("%016x-%016x%s", uint64(term), uint64(index), snapSuffix)
}

// parseSnapFileName reads such a name; ok is false for any other file.
func parseSnapFileName(name string) (term proto.Term, index proto.Index, ok bool) {
	base, ok := strings.CutSuffix(name, snapSuffix)
	if !ok || len(base) != 33 || base[16] != '-' {
		return 0, 0, false
	}
	t, termErr := strconv.ParseUint(base[:16], 16, 64)
	i, indexErr := strconv.ParseUint(base[17:], 16, 64)
	if termErr != nil || indexErr != nil {
		return 0, 0, false
	}
	return proto.Term(t), proto.Index(i), true
}

// SaveSnapFile writes a snapshot into dir in etcd's format, and makes file and name durable. The file gets its name
// last, so a .snap file is never half written. An existing file of the same term and index is replaced. An error for
// which disk.Full holds leaves nothing behind and harms nothing: it may be tried again.
func SaveSnapFile(d Disk, dir string, s *raftpb.Snapshot) error {
	frame, err := encodeSnapFile(s)
	if err != nil {
		return err
	}
	meta := s.GetMetadata()
	return writeSnapFile(d, dir, snapFileName(proto.Term(meta.GetTerm()), proto.Index(meta.GetIndex())), frame)
}

// encodeSnapFile makes the content of a .snap file.
func encodeSnapFile(s *raftpb.Snapshot) ([]byte, error) {
	data, err := protobuf.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode a snapshot: %w", err)
	}
	sum := crc32.Checksum(data, crcTable)
	frame, err := protobuf.Marshal(&proto.SnapFile{Crc: &sum, Data: data})
	if err != nil {
		return nil, fmt.Errorf("encode a snapshot file: %w", err)
	}
	return frame, nil
}

// writeSnapFile makes content and name durable.
func writeSnapFile(d Disk, dir, name string, frame []byte) error {
	temporary := path.Join(dir, snapTemporaryPrefix+"-"+name)
	err := writeSynced(d, temporary, frame)
	if err == nil {
		err = d.Rename(temporary, path.Join(dir, name))
	}
	if err != nil {
		_ = d.RemoveAll(temporary) // what stays is deleted by the next purge
		return fmt.Errorf("write a snapshot file: %w", err)
	}
	return d.SyncDir(dir, disk.SnapDir)
}

func writeSynced(d Disk, name string, data []byte) error {
	file, err := d.Create(name)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	if err == nil {
		err = file.Sync(disk.SnapFile)
	}
	return errors.Join(err, file.Close())
}

// ReadSnapFile reads one snapshot file. ErrSnapshotFileDamaged when its checksum fails or it cannot be decoded.
func ReadSnapFile(d Disk, name string) (*raftpb.Snapshot, error) {
	file, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it is only read
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	frame := make([]byte, size)
	if n, err := file.ReadAt(frame, 0); n < len(frame) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	var wire proto.SnapFile
	if err := protobuf.Unmarshal(frame, &wire); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSnapshotFileDamaged, name, err)
	}
	if len(wire.Data) == 0 || wire.Crc == nil || crc32.Checksum(wire.Data, crcTable) != wire.GetCrc() {
		return nil, fmt.Errorf("%w: %s: the checksum does not match", ErrSnapshotFileDamaged, name)
	}
	s := new(raftpb.Snapshot)
	if err := protobuf.Unmarshal(wire.Data, s); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSnapshotFileDamaged, name, err)
	}
	return s, nil
}

// ListSnapFiles gives the names of the snapshot files in dir, newest first.
func ListSnapFiles(d Disk, dir string) ([]string, error) {
	names, err := d.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshot files: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, _, ok := parseSnapFileName(name)
		return !ok
	})
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// LoadSnapFile reads the newest snapshot file that is whole. Damaged ones on the way get the suffix .broken, so that
// nobody takes them for snapshots again. ErrNoSnapshotFile when none is left.
func LoadSnapFile(d Disk, dir string) (*raftpb.Snapshot, error) {
	names, err := ListSnapFiles(d, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		full := path.Join(dir, name)
		s, err := ReadSnapFile(d, full)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrSnapshotFileDamaged) {
			return nil, err
		}
		if err := d.Rename(full, full+brokenSuffix); err != nil {
			return nil, fmt.Errorf("set a damaged snapshot file aside: %w", err)
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoSnapshotFile, dir)
}

// PurgeSnapFiles deletes all but the newest keep snapshot files, and what an interrupted SaveSnapFile left behind. It
// must not run beside SaveSnapFile. The removals are not synced: a file that comes back is deleted by the next purge.
func PurgeSnapFiles(d Disk, dir string, keep int) error {
	names, err := d.List(dir)
	if err != nil {
		return fmt.Errorf("list snapshot files: %w", err)
	}
	var failed error
	for _, name := range names {
		if strings.HasPrefix(name, snapTemporaryPrefix+"-") && strings.HasSuffix(name, snapSuffix) {
			failed = errors.Join(failed, d.Remove(path.Join(dir, name)))
		}
	}
	files, err := ListSnapFiles(d, dir)
	if err != nil {
		return err
	}
	for _, name := range files[min(keep, len(files)):] {
		failed = errors.Join(failed, d.Remove(path.Join(dir, name)))
	}
	return failed
}
