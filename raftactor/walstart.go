package raftactor

import (
	"fmt"

	"troupe/actors"
)

// startWAL starts the wal actor, or what a test has in its place.
func startWAL(sys *actors.System, cfg *Config, own walOwner) (walLink, error) {
	if cfg.startWAL != nil {
		return cfg.startWAL(own)
	}
	metrics, err := NewLogMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("metrics of the log: %w", err)
	}
	return spawnWAL(sys, walConfig{
		log:     cfg.Log,
		disk:    cfg.Disk,
		snapDir: cfg.SnapDir,

		segmentsKept:  cfg.SegmentsKept,
		snapFilesKept: cfg.SnapFilesKept,
		owner:         own,
		metrics:       metrics,
		logger:        cfg.Logger,
	})
}
