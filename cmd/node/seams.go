package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/gateway"
	"troupe/raftactor"
	"troupe/storeactor"
)

// Seams are what a node takes from the process and the machine around it. Tests and simulations put their own in; the
// zero value of each field means the real thing.
type Seams struct {
	// Log gets the log lines. It must not block.
	Log zerolog.Logger
	// LogLevel changes what Log lets through while the node runs; nil when it cannot be changed.
	LogLevel gateway.LogLevel
	// LogDropped tells how many lines were lost; nil when nobody counts.
	LogDropped func() uint64
	// BeforeExit runs when a broken invariant ends the process, so that the log reaches its reader.
	BeforeExit func()
	// Ready is called once, exactly when client requests are served.
	Ready func()

	// Clock and Dispatcher replace time and goroutines.
	Clock      actors.Clock
	Dispatcher actors.Dispatcher
	// Fatal replaces the end of the process after a broken invariant.
	Fatal func(actor string, reason any, stack []byte)
	// Disk replaces the file system under the log and the snapshot files.
	Disk raftactor.Disk
	// OpenFile replaces the database file.
	OpenFile func(path string) (storeactor.File, error)
	// Registry collects the metrics; nil means one of the node's own.
	Registry *prometheus.Registry
	// Random gives numbers in [0, 1) for the jitter of notifications.
	Random func() float64
	// Work runs what is computed beside the actors, such as a hash; nil means a goroutine.
	Work func(job func())
	// Machine wraps what raft applies to, CommitLog what the store asks before a checkpoint. They are for simulations,
	// which record what passes and leave out what must not be left out.
	Machine   func(raftactor.Machine) raftactor.Machine
	CommitLog func(storeactor.CommitLog) storeactor.CommitLog
}

// withDefaults fills in the real things.
func (s Seams) withDefaults(cfg *Config) Seams {
	if s.Disk == nil {
		s.Disk = raftactor.OSDisk()
		if cfg.UnsafeNoFsync {
			s.Disk = unsyncedDisk{s.Disk}
		}
	}
	if s.OpenFile == nil {
		s.OpenFile = func(path string) (storeactor.File, error) {
			if err := ensureDir(filepath.Dir(path)); err != nil {
				return nil, err
			}
			file, err := storeactor.OpenBoltFile(path, storeactor.BoltOptions{
				QuotaBytes:    cfg.QuotaBytes,
				NoSync:        cfg.UnsafeNoFsync,
				ArrayFreelist: cfg.FreelistType == freelistArray,
				Locked:        cfg.MemoryLock,
			})
			switch {
			case err != nil && cfg.MemoryLock && strings.Contains(err.Error(), "mlock"):
				return nil, fmt.Errorf("%w (with --memory-mlock, which needs CAP_IPC_LOCK or a limit of locked memory, "+
					"ulimit -l, above the file's size)", err)
			case err != nil:
				return nil, err
			}
			if err := removeLeftovers(filepath.Dir(path), s); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return file, nil
		}
	}
	if s.Registry == nil {
		s.Registry = prometheus.NewRegistry()
	}
	if s.Ready == nil {
		s.Ready = func() {}
	}
	if s.Machine == nil {
		s.Machine = func(m raftactor.Machine) raftactor.Machine { return m }
	}
	if s.CommitLog == nil {
		s.CommitLog = func(l storeactor.CommitLog) storeactor.CommitLog { return l }
	}
	return s
}

// system makes the actor system of this member.
func (s Seams) system(name string) *actors.System {
	fatal := s.Fatal
	if fatal == nil && s.BeforeExit != nil {
		fatal = exitWithStack(s.Log, s.BeforeExit)
	}
	return actors.NewSystem(actors.Config{
		Name:       name,
		Log:        s.Log,
		Clock:      s.Clock,
		Dispatcher: s.Dispatcher,
		Fatal:      fatal,
	})
}
