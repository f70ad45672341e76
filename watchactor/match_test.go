package watchactor

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawRange makes small ranges, so that they overlap, nest and repeat.
func drawRange(t *rapid.T) Range {
	part := rapid.SampledFrom([]string{"", "a", "aa", "ab", "b", "ba", "c", "cc", "d"})
	r := Range{Key: part.Draw(t, "key"), End: part.Draw(t, "end")}
	if rapid.IntRange(0, 4).Draw(t, "open") == 0 {
		r.End = rangeOpen
	}
	return r
}

// TestMatchIndex_FindsWhatAListFinds compares the index with a list of ranges.
func TestMatchIndex_FindsWhatAListFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x matchIndex[int]
		list := map[Range]int{}
		for i := range rapid.IntRange(1, 80).Draw(t, "steps") {
			r := drawRange(t)
			if r.empty() {
				continue
			}
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				x.put(r, i)
				list[r] = i
			} else {
				x.remove(r)
				delete(list, r)
			}
			if x.size() != len(list) {
				t.Fatalf("%d ranges, want %d", x.size(), len(list))
			}
			for one, want := range list {
				if got, ok := x.get(one); !ok || got != want {
					t.Fatalf("%v gives %d, %v; want %d", one, got, ok, want)
				}
			}
			for _, key := range []string{"", "a", "aa", "aaz", "ab", "b", "bz", "c", "d", "\xff"} {
				var got, want []int
				x.match([]byte(key), func(v int) { got = append(got, v) })
				for one, v := range list {
					if one.Contains([]byte(key)) {
						want = append(want, v)
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%q is in %v, want %v", key, got, want)
				}
			}
		}
	})
}

// TestRange_Name keeps actor names short and printable.
func TestRange_Name(t *testing.T) {
	long := make([]byte, 500)
	for i, c := range []struct {
		r    Range
		want string
	}{
		{Range{Key: "/registry/"}, "/registry/"},
		{Range{Key: "a", End: "b"}, "a..b"},
		{Range{Key: "\x00", End: rangeOpen}, "%00.."},
		{Range{Key: "%\xff "}, "%25%ff%20"},
	} {
		if got := c.r.name(); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
	if n := len((Range{Key: string(long), End: string(long[:499])}).name()); n > 6*rangeNameBytesMax+2 {
		t.Errorf("a name of %d bytes", n)
	}
}
