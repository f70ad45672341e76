package raftactor

import (
	"errors"
	"fmt"

	"troupe/proto"

	"go.etcd.io/raft/v3/raftpb"
	protobuf "google.golang.org/protobuf/proto"
)

// What makes the data of a record impossible, whatever its checksum says: the checksum does not cover the type.
var (
	errEntryFields    = errors.New("an entry without index, term or data, or of an unknown type")
	errSnapshotFields = errors.New("a snapshot record without the configuration at its index")
)

// decodeEntry decodes an entry. The result owns its bytes. A configuration change has data; without that rule, a hard
// state whose type was damaged would pass for one, and overwrite the entry at the commit index.
func decodeEntry(data []byte) (*raftpb.Entry, error) {
	entry := new(raftpb.Entry)
	if err := protobuf.Unmarshal(data, entry); err != nil {
		return nil, fmt.Errorf("entry: %w", err)
	}
	_, known := raftpb.EntryType_name[int32(entry.GetType())]
	if entry.GetIndex() == 0 || entry.GetTerm() == 0 || !known {
		return nil, errEntryFields
	}
	if entry.GetType() != raftpb.EntryNormal && len(entry.Data) == 0 {
		return nil, errEntryFields
	}
	return entry, nil
}

// decodeHardState decodes a hard state.
func decodeHardState(data []byte) (*raftpb.HardState, error) {
	hs := new(raftpb.HardState)
	if err := protobuf.Unmarshal(data, hs); err != nil {
		return nil, fmt.Errorf("hard state: %w", err)
	}
	return hs, nil
}

// decodeSnapshotRecord decodes a snapshot record.
func decodeSnapshotRecord(data []byte) (SnapshotRecord, error) {
	var wire proto.WALSnapshot
	if err := protobuf.Unmarshal(data, &wire); err != nil {
		return SnapshotRecord{}, fmt.Errorf("snapshot record: %w", err)
	}
	r := SnapshotRecord{Index: proto.Index(wire.GetIndex()), Term: proto.Term(wire.GetTerm())}
	if wire.ConfState != nil {
		r.ConfState = new(raftpb.ConfState)
		if err := protobuf.Unmarshal(wire.ConfState, r.ConfState); err != nil {
			return SnapshotRecord{}, fmt.Errorf("configuration of a snapshot record: %w", err)
		}
	}
	if r.Index > 0 && r.ConfState == nil {
		return SnapshotRecord{}, errSnapshotFields
	}
	return r, nil
}

// decodeMeta decodes the metadata of a log.
func decodeMeta(data []byte) (LogMeta, error) {
	var wire proto.WALMetadata
	if err := protobuf.Unmarshal(data, &wire); err != nil {
		return LogMeta{}, fmt.Errorf("metadata: %w", err)
	}
	return LogMeta{Member: proto.MemberID(wire.GetNodeId()), Cluster: proto.ClusterID(wire.GetClusterId())}, nil
}
