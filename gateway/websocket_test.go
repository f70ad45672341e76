package gateway

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/http"
	"testing"
	"time"
)

// masked is a frame as a client sends it, with a mask of zeroes, which leaves the bytes as they are.
func masked(first byte, payload string) string {
	return string([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}) + payload
}

// readFrame reads a frame of the server, which has no mask, and gives its opcode.
func readFrame(t *testing.T, from *bufio.Reader) (opcode byte, payload []byte) {
	t.Helper()
	var head [2]byte
	_, err := io.ReadFull(from, head[:])
	length := int(head[1])
	if err == nil && length == 126 {
		var long [2]byte
		_, err = io.ReadFull(from, long[:])
		length = int(binary.BigEndian.Uint16(long[:]))
	}
	payload = make([]byte, length)
	if _, more := io.ReadFull(from, payload); err != nil || more != nil {
		t.Fatal(err, more)
	}
	return head[0] & 0xf, payload
}

// What is no frame of RFC 6455, or may not come there, is a protocol error, 1002 in its section 7.4.1, whatever the
// client was waiting for; and it is all that the client is told.
func TestWebsocket_ABadFrameIsAProtocolError(t *testing.T) {
	e := newReadyEdge(t, nil)
	const text, continuation, closing, ping, final = 0x1, 0x0, 0x8, 0x9, 0x80
	const behind = "behind the request of the call"
	create := `{"create_request":{"key":"aw=="}}`
	for name, frames := range map[string]string{
		"without a mask":                    "\x81\x02{}",
		"reserved bits":                     masked(final|0x70|text, "{}"),
		"an opcode that there is not":       masked(final|0x3, "{}"),
		"a continuation of nothing":         masked(final|continuation, "{}"),
		"a message within a message":        masked(text, "{") + masked(final|text, "}"),
		"a ping in fragments":               masked(ping, "x"),
		"a ping that is too long":           string([]byte{final | ping, 0xfe, 0, 126, 0, 0, 0, 0}),
		"a close with half a code":          masked(final|closing, "x"),
		"a length below zero":               string([]byte{final | text, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
		behind:                              masked(final|text, create) + "\x81\x02{}",
		"in the middle of the first object": masked(text, `{"create_request":`) + "\x80\x02{}",
	} {
		t.Run(name, func(t *testing.T) {
			c := say(t, e.addr, "GET /v3/watch HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
			_ = c.SetReadDeadline(time.Now().Add(testPatience))
			from := bufio.NewReader(c)
			r, err := http.ReadResponse(from, nil)
			if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%+v, %v", r, err)
			}
			_ = r.Body.Close()
			if _, err := io.WriteString(c, frames); err != nil {
				t.Fatal(err)
			}
			opcode, payload := readFrame(t, from)
			for name == behind && opcode&closing == 0 { // the call may have been answered before
				opcode, payload = readFrame(t, from)
			}
			if opcode != closing || len(payload) < 2 || binary.BigEndian.Uint16(payload) != 1002 {
				t.Errorf("the answer is %x, %q", opcode, payload)
			}
			_ = c.Close()
		})
	}
	eventually(t, "all places are free", func() bool {
		return e.gates.json.inside() == 0 && e.gates.streams.inside() == 0
	})
}
