package harness

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Conversation is one HTTP request on a connection of its own whose body and answer are both open: the client goes on
// sending while the server answers. It is not safe for concurrent use.
type Conversation struct {
	t      testing.TB
	cancel context.CancelFunc
	body   *io.PipeWriter
	got    chan *http.Response
	failed chan error
	answer *http.Response
	lines  *bufio.Reader
}

// Converse begins a conversation with a POST; it ends with the test, unless Close ends it before.
func (s *Server) Converse(t testing.TB, path string) *Conversation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	reader, writer := io.Pipe()
	c := &Conversation{t: t, cancel: cancel, body: writer, got: make(chan *http.Response, 1), failed: make(chan error, 1)}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request) //nolint:bodyclose // Close closes it
		if err != nil {
			c.failed <- err
			return
		}
		c.got <- answer
	}()
	t.Cleanup(c.Close)
	return c
}

// Send sends a part of the body.
func (c *Conversation) Send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.body, text); err != nil {
		c.t.Fatalf("harness: send %q: %v", text, err)
	}
}

// End ends the body; the answer stays open.
func (c *Conversation) End() { _ = c.body.Close() }

// Status waits for the head of the answer and gives its status.
func (c *Conversation) Status() int {
	c.t.Helper()
	if c.answer == nil {
		select {
		case c.answer = <-c.got:
			c.lines = bufio.NewReader(c.answer.Body)
		case err := <-c.failed:
			c.t.Fatalf("harness: no answer: %v", err)
		}
	}
	return c.answer.StatusCode
}

// Line waits for the next line of the answer; it is empty at the end.
func (c *Conversation) Line() string {
	c.t.Helper()
	c.Status()
	line, err := c.lines.ReadString('\n')
	if err != nil && line == "" && err != io.EOF {
		c.t.Fatalf("harness: read a line: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Close closes the connection, at once and whatever is open on it.
func (c *Conversation) Close() {
	c.cancel()
	_ = c.body.Close()
	select {
	case c.answer = <-c.got:
	default:
	}
	if c.answer != nil {
		c.answer.Body.Close()
	}
}
