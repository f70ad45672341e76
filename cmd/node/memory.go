package node

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
)

// The collector's share of the work is largest while the live heap is small: with Go's default of 100 % a member that
// holds 20 MB collects after every 20 MB of requests. So the percentage is chosen after each collection, such that
// about heapSlackBytes may be allocated until the next one; a large heap falls back to Go's default, which keeps the
// overhead at twice the live heap and no more. More would save little: a third more or less is 2 % of the CPU of puts.
// Where memory is scarce the container's limit makes the collector come sooner.
const (
	heapSlackBytes   = 96 << 20
	gcPercentMin     = 100
	gcPercentMax     = 1600
	liveHeapMetric   = "/gc/heap/live:bytes"
	memoryLimitShare = 0.9 // of the container's limit; the rest is for the kernel's pages and thread stacks
	// cgroupLimitMax is the number from which a limit is none: version 1 of control groups says "no limit" as the largest
	// multiple of a page.
	cgroupLimitMax = 1 << 60
	// cgroupDepthMax bounds the walk from the process's group to the root.
	cgroupDepthMax = 64
)

// gcPercent is the percentage for a live heap of that size.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcPercentMax
	}
	return int(min(gcPercentMax, max(gcPercentMin, heapSlackBytes*100/live)))
}

// tuneMemory sets the memory limit from the container's and keeps the collector's percentage in step with the live
// heap. It leaves alone what the operator has set by GOMEMLIMIT or GOGC, and says once what is in force.
func tuneMemory(log *zerolog.Logger) {
	line := log.Info()
	if text := os.Getenv("GOMEMLIMIT"); text != "" {
		line.Str("memory-limit-from", "GOMEMLIMIT")
	} else if limit, source := containerLimit("/"); limit > 0 {
		debug.SetMemoryLimit(int64(float64(limit) * memoryLimitShare))
		line.Str("memory-limit-from", source).Int64("container-limit", limit)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		line.Int64("memory-limit", limit)
	}
	if text := os.Getenv("GOGC"); text != "" {
		line.Str("gc-percent", text)
	} else {
		debug.SetGCPercent(gcPercentMax)
		retuneAfterCollection()
		line.Str("gc-percent", "by heap size")
	}
	line.Msg("memory settings")
}

// collectionMark becomes garbage at once, so its cleanup runs after each collection.
type collectionMark struct{ _ [16]byte }

func retuneAfterCollection() {
	runtime.AddCleanup(&collectionMark{}, func(struct{}) {
		sample := []metrics.Sample{{Name: liveHeapMetric}}
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			debug.SetGCPercent(gcPercent(sample[0].Value.Uint64()))
		}
		retuneAfterCollection()
	}, struct{}{})
}

// containerLimit is the smallest memory limit of the control groups that the process is in, and the file that says so;
// 0 when there is none. A group's limit holds for the groups below it, so that all from the process's own to the root
// are looked at: an orchestrator often sets the limit on a group above. root is "/", except in tests.
func containerLimit(root string) (limit int64, source string) {
	limit = math.MaxInt64
	for _, file := range limitFiles(root) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // version 2 says "max"
		if err == nil && n > 0 && n < min(limit, cgroupLimitMax) {
			limit, source = n, file
		}
	}
	if source == "" {
		return 0, ""
	}
	return limit, source
}

// limitFiles are the files that may hold a memory limit, by /proc/self/cgroup. Inside a container the path there may
// be the host's, which is not mounted, so that the root of the mount is always among them.
func limitFiles(root string) []string {
	const v2, v1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
	files := []string{v2 + "/memory.max", v1 + "/memory.limit_in_bytes"}
	text, err := os.ReadFile(filepath.Join(root, "/proc/self/cgroup"))
	if err != nil {
		return files
	}
	for line := range strings.Lines(string(text)) { // hierarchy:controllers:path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var mount, name string
		switch {
		case fields[0] == "0" && fields[1] == "":
			mount, name = v2, "memory.max"
		case containsWord(fields[1], "memory"):
			mount, name = v1, "memory.limit_in_bytes"
		default:
			continue
		}
		group := path.Clean("/" + fields[2])
		for range cgroupDepthMax {
			if group == "/" {
				break
			}
			files = append(files, path.Join(mount, group, name))
			group = path.Dir(group)
		}
	}
	return files
}

// containsWord reports whether a list with commas has the word.
func containsWord(list, word string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one == word {
			return true
		}
	}
	return false
}
