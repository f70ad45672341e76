package gateway

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// frame is a frame of HTTP/2 with a payload of that length.
func frame(kind, flags byte, payload int) []byte {
	f := []byte{byte(payload >> 16), byte(payload >> 8), byte(payload), kind, flags, 0, 0, 0, 1}
	return append(f, bytes.Repeat([]byte{kind}, payload)...)
}

// ping is a ping with that payload.
func ping(payload byte) []byte {
	f := pingAck(payload)
	f[4] = 0
	return f
}

// However the bytes come in pieces: what passes is all but the pings that were taken, and those that come in one piece
// are taken.
func TestPingSieve_TakesWholePingsAndNothingElse(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		frames := [][]byte{[]byte(http2Preface)}
		for i := range byte(r.IntN(12)) {
			switch r.IntN(4) {
			case 0, 1:
				frames = append(frames, ping(i))
			case 2: // its payload looks like a ping
				inner := ping(200)
				frames = append(frames, append([]byte{0, 0, byte(len(inner)), dataType, 0, 0, 0, 0, 1}, inner...))
			default:
				frames = append(frames, frame(byte(r.IntN(10)), ackFlag|endHeadersFlag, r.IntN(300)))
			}
		}
		taken := make(map[byte]bool)
		take := func(p []byte) bool {
			taken[p[0]] = true
			return true
		}
		s, got := newPingSieve(), []byte(nil)
		whole := r.IntN(2) == 0
		for rest := slices.Clone(frames); len(rest) > 0; {
			n := 1 + r.IntN(len(rest)) // frames that come together
			piece := bytes.Join(rest[:n], nil)
			rest = rest[n:]
			for len(piece) > 0 {
				k := len(piece)
				if !whole {
					k = min(k, 1+r.IntN(40))
				}
				got = append(got, s.sift(bytes.Clone(piece[:k]), take)...)
				piece = piece[k:]
			}
		}
		var want []byte
		for i, f := range frames {
			isOne := i > 0 && isPing(f)
			if isOne && whole && !taken[byte(i-1)] {
				t.Fatalf("seed %d: ping %d was not taken", seed, i-1)
			}
			if !isOne || !taken[byte(i-1)] {
				want = append(want, f...)
			}
		}
		if taken[200] || !bytes.Equal(got, want) {
			t.Fatalf("seed %d: passed\n%x, want\n%x", seed, got, want)
		}
	}
}

func TestPingSieve_PassesWhatIsNotAnswered(t *testing.T) {
	all := append([]byte(http2Preface), append(ping(1), frame(dataType, 0, 5)...)...)
	if got := newPingSieve().sift(bytes.Clone(all), func([]byte) bool { return false }); !bytes.Equal(got, all) {
		t.Errorf("of %x passed %x", all, got)
	}
	for name, odd := range map[string][]byte{
		"an answer": pingAck(1), "of a stream": {0, 0, 8, pingType, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8},
		"too short":             {0, 0, 7, pingType, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7},
		"in part":               ping(1)[:frameHeaderBytes+pingBytes-1],
		"in a block of headers": append(frame(headersType, 0, 4), ping(1)...),
	} {
		s := new(pingSieve)
		got := s.sift(bytes.Clone(odd), func([]byte) bool { return true })
		if !bytes.Equal(got, odd) {
			t.Errorf("a ping %s: of %x passed %x", name, odd, got)
		}
	}
}

// A client may ping once after each answer; gRPC has to see it when it pings more often.
func TestPingAcks_OnePingIsAnsweredForEachAnswer(t *testing.T) {
	conn, joiner := &writesRecorder{}, &ackJoiner{}
	payload := bytes.Repeat([]byte{7}, pingBytes)
	if joiner.answer(conn, payload) {
		t.Error("answered before anything was sent")
	}
	for range 3 {
		if _, err := joiner.write(conn, frame(headersType, endHeadersFlag, 3)); err != nil {
			t.Fatal(err)
		}
		if !joiner.answer(conn, payload) || joiner.answer(conn, payload) {
			t.Fatal("want the first ping after an answer to be answered, and no other")
		}
	}
	eventually(t, "the last answer goes out by itself", func() bool {
		_, all := conn.written()
		return bytes.Count(all, pingAck(7)) == 3
	})
	if _, err := joiner.write(conn, frame(settingsType, 0, 6)); err != nil {
		t.Fatal(err)
	}
	if joiner.answer(conn, payload) {
		t.Error("answered though nothing was sent but settings")
	}
}

// gRPC's buffers may end within a frame, and a ping may be answered at any time.
func TestPingAcks_GoBetweenFrames(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		conn, joiner := &writesRecorder{}, &ackJoiner{}
		var sent []byte
		for range 1 + r.IntN(10) {
			sent = append(sent, frame(byte(r.IntN(2)), endHeadersFlag, r.IntN(2*joinedBytesMax))...)
		}
		answered := 0
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(joinedBytesMax))
			if _, err := joiner.write(conn, rest[:n]); err != nil {
				t.Fatal(err)
			}
			if rest = rest[n:]; joiner.answer(conn, bytes.Repeat([]byte{byte(answered)}, pingBytes)) {
				answered++
			}
		}
		var got []byte
		eventually(t, "all pings are answered", func() bool {
			acks := 0
			got = got[:0]
			for _, all := conn.written(); len(all) > 0; {
				var place framePlace
				n := place.step(all)
				n += place.passing
				if n > len(all) {
					t.Fatalf("seed %d: a frame of %d bytes where %d are left", seed, n, len(all))
				}
				if isPingAck(all[:n]) {
					if want := pingAck(byte(acks)); !bytes.Equal(all[:n], want) {
						t.Fatalf("seed %d: answer %d is %x", seed, acks, all[:n])
					}
					acks++
				} else {
					got = append(got, all[:n]...)
				}
				all = all[n:]
			}
			return acks == answered
		})
		if answered == 0 || !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: %d answers; of %d bytes %d arrived, or others", seed, answered, len(sent), len(got))
		}
	}
}

// The reader of a connection must not wait for a client that does not read.
func TestPingAcks_APingDoesNotWaitForAWrite(t *testing.T) {
	joiner := &ackJoiner{spoke: true}
	joiner.mu.Lock()
	if joiner.answer(nil, make([]byte, pingBytes)) {
		t.Error("a ping was answered in the middle of a write")
	}
}

// A large answer that breaks off leaves the connection within a frame for ever.
func TestPingAcks_NothingRunsOnAfterABrokenWriteOrTheEnd(t *testing.T) {
	payload := make([]byte, pingBytes)
	for name, breaks := range map[string]func(*ackJoiner, *writesRecorder){
		"broken": func(a *ackJoiner, conn *writesRecorder) {
			conn.broken = errors.New("reset")
			_, _ = a.write(conn, frame(dataType, 0, 1000)[:500])
		},
		"closed": func(a *ackJoiner, conn *writesRecorder) {
			_, _ = a.write(conn, frame(dataType, 0, 1000)[:500])
			a.end()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn, joiner := &writesRecorder{}, &ackJoiner{}
			if _, err := joiner.write(conn, frame(headersType, endHeadersFlag, 3)); err != nil {
				t.Fatal(err)
			}
			if !joiner.answer(conn, payload) {
				t.Fatalf("%s: the ping is not answered", name)
			}
			breaks(joiner, conn)
			time.Sleep(10 * pingAckHeldMax)
			synctest.Wait()
			writes, _ := conn.written()
			time.Sleep(10 * pingAckHeldMax)
			if after, _ := conn.written(); after != writes || len(joiner.held) > 0 || joiner.timer.Stop() {
				t.Errorf("%s: %d answers are held, %d writes later", name, len(joiner.held), after-writes)
			}
			if joiner.spoke = true; joiner.answer(conn, payload) {
				t.Errorf("%s: a ping is answered", name)
			}
		})
	}
}

// A call and then nothing but pings: one is taken; another gRPC permits, as the first after its answer; at the third of
// those that follow it objects, after answering that as well. Without the sieve it would be the fourth in all.
func TestPingSieve_TooManyPingsAreStillObjectedTo(t *testing.T) {
	c := dial(t, newReadyEdge(t, nil))
	field := func(name, value string) string { // without the table (RFC 7541, section 6.2.2)
		return "\x00" + string(rune(len(name))) + name + string(rune(len(value))) + value
	}
	headers := field(":method", "POST") + field(":scheme", "http") + field(":path", "/no/such") +
		field(":authority", "x") + field("content-type", "application/grpc") + field("te", "trailers")
	call := []byte{2: byte(len(headers)), 3: headersType, 4: endHeadersFlag | 1, 8: 1} // and the end of the stream
	send := func(parts ...[]byte) {
		t.Helper()
		if _, err := c.Write(bytes.Join(parts, nil)); err != nil {
			t.Fatal(err)
		}
	}
	send([]byte(http2Preface), make([]byte, 3), []byte{settingsType, 5: 0})
	for answers := byte(0); ; {
		header := make([]byte, frameHeaderBytes)
		if _, err := io.ReadFull(c, header); err != nil {
			t.Fatalf("after %d answers: %v", answers, err)
		}
		payload := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			t.Fatal(err)
		}
		const goAway, objectedTo = 0x7, 5
		switch header[3] {
		case settingsType:
			if header[4] == ackFlag { // the answer to the call does not leave together with this
				send(call, []byte(headers))
			}
		case headersType:
			send(ping(1))
		case pingType:
			if answers++; !bytes.Equal(payload, bytes.Repeat([]byte{answers}, pingBytes)) {
				t.Fatalf("answer %d has %x", answers, payload)
			}
			send(ping(answers + 1))
		case goAway:
			if !bytes.Contains(payload, []byte("too_many_pings")) || answers != objectedTo {
				t.Errorf("after %d pings, want %d: %q", answers, objectedTo, payload)
			}
			return
		}
	}
}
