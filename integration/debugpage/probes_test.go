package debugpage

import (
	"fmt"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// A disk that stops answering is no reason to restart the member: nothing would be better afterwards. It reads on, and
// says what is wrong.
func TestProbes_LivezOutlivesAStalledDiskAndReadyzNamesIt(t *testing.T) {
	m := startMember(t)
	if _, err := m.client(t).Put(harness.Context(t, limit), "before", "x"); err != nil {
		t.Fatal(err)
	}
	ask := func(path string) (int, string) {
		t.Helper()
		return harness.Page(t, m.url+path)
	}
	m.disk.set(true)
	waiting := make(chan error, 1)
	put := harness.Context(t, limit)
	client := m.client(t)
	go func() {
		_, err := client.Put(put, "during", "x")
		waiting <- err
	}()
	harness.Eventually(t, limit, "readyz names the disk", func() error {
		if code, body := ask("/readyz"); code != 503 || !strings.Contains(body, "[-]disk failed: the disk of the log") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for range 10 {
		for _, path := range []string{"/livez", "/health?serializable=true", "/readyz/serializable_read"} {
			if code, body := ask(path); code != 200 {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	}
	m.disk.set(false)
	if err := <-waiting; err != nil {
		t.Logf("the put that waited got %v", err) // it may have been refused
	}
	harness.Eventually(t, limit, "the member is ready", func() error {
		if code, body := ask("/readyz"); code != 200 {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}
