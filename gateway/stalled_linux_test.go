package gateway

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// TestStalled_AClientThatReadsSlowlyIsNotTakenForOneThatDoesNot: what the system holds of its answers moves, though
// gRPC can hand over nothing.
func TestStalled_AClientThatReadsSlowlyIsNotTakenForOneThatDoesNot(t *testing.T) {
	c, client := enteredConn(t)
	var err error
	for err == nil { // until the system takes no more
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = c.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	const moment = time.Second
	c.reads(moment)
	if _, fell := c.reads(moment); fell {
		t.Error("a client that reads nothing is said to read")
	}
	if _, err := io.CopyN(io.Discard, client, 4*answerReadRateMin); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a client that has read is seen to read", func() bool { _, fell := c.reads(moment / 100); return fell })
	eventually(t, "it rests", func() bool { _, fell := c.reads(moment); return !fell })
}
