package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type fakeLevel struct{ name string }

func (f *fakeLevel) Level() string { return f.name }
func (f *fakeLevel) SetLevel(name string) error {
	if name != "debug" {
		return errors.New("unknown")
	}
	f.name = name
	return nil
}

// The level of the log is shown wherever debug pages are, and changed on their own port only.
func TestLogLevel_IsChangedOnADebugPortOnly(t *testing.T) {
	level := &fakeLevel{"info"}
	e := newReadyEdge(t, func(c *Config) { c.LogLevel = level })
	client := "http://" + e.addr
	own := httptest.NewServer(e.debugMux())
	defer own.Close()
	for _, c := range []struct {
		url, method, body string
		code              int
		answer            string
	}{
		{client, http.MethodGet, "", http.StatusOK, "info"},
		{client, http.MethodPut, "debug", http.StatusForbidden, "--debug-listen-urls"},
		{own.URL, http.MethodPost, "debug", http.StatusMethodNotAllowed, ""},
		{own.URL, http.MethodPut, "loud", http.StatusBadRequest, "unknown"},
		{own.URL, http.MethodPut, strings.Repeat("x", 2*logLevelBytesMax), http.StatusBadRequest, "too large"},
		{own.URL, http.MethodGet, "", http.StatusOK, "info"},
		{own.URL, http.MethodPut, "debug\n", http.StatusOK, "debug"},
		{client, http.MethodGet, "", http.StatusOK, "debug"},
	} {
		r, err := http.NewRequest(c.method, c.url+"/debug/loglevel", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.code || !strings.Contains(string(body), c.answer) {
			t.Errorf("%s %.20q at %s: %d %s", c.method, c.body, c.url, answer.StatusCode, body)
		}
	}
}
