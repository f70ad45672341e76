package node

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestGCPercent_HighForASmallHeapAndGosDefaultForALargeOne(t *testing.T) {
	cases := map[uint64]int{0: gcPercentMax, 1 << 20: gcPercentMax, 16 << 20: 600, 1 << 30: gcPercentMin}
	for live, want := range cases {
		if got := gcPercent(live); got != want {
			t.Errorf("gcPercent(%d) = %d, want %d", live, got, want)
		}
	}
	last := gcPercentMax
	for live := uint64(1 << 20); live < 1<<34; live *= 2 {
		if got := gcPercent(live); got > last {
			t.Errorf("the percentage rises to %d with a heap of %d", got, live)
		} else {
			last = got
		}
	}
}

func TestContainerLimit_SmallestOfTheGroupsAndTheirParents(t *testing.T) {
	const none = "9223372036854771712\n" // what version 1 says without a limit
	cases := map[string]struct {
		files      map[string]string
		want       int64
		wantSource string
	}{
		"no control groups": {},
		"version 2, in a container": {
			files: map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"},
			want:  512 << 20, wantSource: "/sys/fs/cgroup/memory.max"},
		"version 2, no limit": {
			files: map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}},
		"version 2, a unit below a slice with the limit": {
			files: map[string]string{"proc/self/cgroup": "0::/system.slice/store.service\n",
				"sys/fs/cgroup/system.slice/memory.max":               "1073741824\n",
				"sys/fs/cgroup/system.slice/store.service/memory.max": "max\n"},
			want: 1 << 30, wantSource: "/sys/fs/cgroup/system.slice/memory.max"},
		"version 2, the own group has less": {
			files: map[string]string{"proc/self/cgroup": "0::/pods/one\n", "sys/fs/cgroup/pods/memory.max": "1073741824\n",
				"sys/fs/cgroup/pods/one/memory.max": "268435456\n"},
			want: 256 << 20, wantSource: "/sys/fs/cgroup/pods/one/memory.max"},
		"version 1, with the host's path": {
			files: map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:hugetlb,memory:/docker/abc\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"},
			want: 256 << 20, wantSource: "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		"version 1, nested": {
			files: map[string]string{"proc/self/cgroup": "4:memory:/a/b\n0::/elsewhere\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":     none,
				"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "134217728\n"},
			want: 128 << 20, wantSource: "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"},
		"version 1, no limit": {
			files: map[string]string{"proc/self/cgroup": "4:memory:/\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": none}},
		"nonsense": {
			files: map[string]string{"proc/self/cgroup": "\n::\n0::../../etc\nx", "sys/fs/cgroup/memory.max": "-1\n"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range c.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if limit, source := containerLimit(root); limit != c.want || source != c.wantSource {
				t.Errorf("%d from %q, want %d from %q", limit, source, c.want, c.wantSource)
			}
		})
	}
}

// keepSettings puts the process's settings back after a test.
func keepSettings(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	t.Cleanup(func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(percent)
	})
}

func TestTuneMemory_TheOperatorsSettingsWinAndAreSaidOnce(t *testing.T) {
	keepSettings(t)
	t.Setenv("GOMEMLIMIT", "3GiB")
	t.Setenv("GOGC", "70")
	debug.SetMemoryLimit(3 << 30) // as the runtime has done at the start
	debug.SetGCPercent(70)
	var out bytes.Buffer
	log := zerolog.New(&out)
	tuneMemory(&log)
	if limit := debug.SetMemoryLimit(-1); limit != 3<<30 {
		t.Errorf("the limit is %d", limit)
	}
	if percent := debug.SetGCPercent(70); percent != 70 {
		t.Errorf("the percentage is %d", percent)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1 {
		t.Errorf("%d lines: %s", lines, &out)
	}
	for _, want := range []string{`"memory-limit-from":"GOMEMLIMIT"`, `"memory-limit":3221225472`, `"gc-percent":"70"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing: %s", want, &out)
		}
	}
}

// ballast is a live heap for the test below.
var ballast []byte

func TestTuneMemory_ThePercentageFallsAsTheHeapGrows(t *testing.T) {
	keepSettings(t)
	t.Setenv("GOMEMLIMIT", "off")
	t.Setenv("GOGC", "")
	debug.SetMemoryLimit(math.MaxInt64)
	log := zerolog.Nop()
	tuneMemory(&log)
	ballast = make([]byte, 2*heapSlackBytes)
	defer func() { ballast = nil }()
	for end := time.Now().Add(30 * time.Second); ; {
		runtime.GC() // the cleanup runs some time after it
		percent := debug.SetGCPercent(gcPercentMax)
		debug.SetGCPercent(percent)
		if percent == gcPercentMin {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the percentage is %d with a live heap of %d", percent, len(ballast))
		}
	}
}
