package gateway

import (
	"bytes"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"troupe/proto"
)

// deafWatch opens a watch whose client has not begun to read.
func deafWatch(t *testing.T, e *edge) (*fakeStream, pb.Watch_WatchClient, *grpc.ClientConn) {
	t.Helper()
	conn := dialGRPC(t, e)
	client, err := pb.NewWatchClient(conn).Watch(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return e.watched(t), client, conn
}

// blob is a field that a WatchResponse does not have (15), of so many bytes, in pieces of a size.
func blob(size, piece int) [][]byte {
	head := protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.BytesType), uint64(size))
	pieces := [][]byte{head}
	for size > 0 {
		n := min(size, piece)
		pieces = append(pieces, bytes.Repeat([]byte{'v'}, n))
		size -= n
	}
	return pieces
}

// sendBlobs sends frames of all the kinds in which a response is encoded: copied into one buffer, into chunks, shared
// with small pieces behind the last large one. It gives what was sent, and copies of it.
func sendBlobs(s *fakeStream) (sent, frames []WatchFrame) {
	for _, pieces := range [][][]byte{
		blob(answerBytesCounted, 100), blob(3*chunkBytes, 100), blob(3*chunkBytes, chunkBytes), blob(5*chunkBytes, 5000),
		blob(2*chunkBytes, sharedPieceBytesMin), append(blob(2*chunkBytes, 2*chunkBytes), blob(chunkBytes, 500)...),
		blob(1<<20, 1<<20),
	} {
		kept := make([][]byte, len(pieces))
		for i := range pieces {
			kept[i] = bytes.Clone(pieces[i])
		}
		frames = append(frames, WatchFrame{Revision: 4, Events: kept})
		sent = append(sent, WatchFrame{Revision: 4, Events: pieces})
		s.frames <- sent[len(sent)-1]
	}
	return sent, frames
}

// What gRPC holds of watch responses is lent by their stream, until the client has taken it. Its bytes are those of
// other streams, too, and stay as they are.
func TestWatch_LendsWhatItsClientHasNotTaken(t *testing.T) {
	e := newReadyEdge(t, nil)
	s, client, _ := deafWatch(t, e)
	sent, frames := sendBlobs(s)
	eventually(t, "something is lent", func() bool { return s.lent.Load() > chunkBytes })
	for range frames {
		if _, err := client.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nothing is lent", func() bool { return s.lent.Load() == 0 })
	for i := range frames {
		if !slices.EqualFunc(sent[i].Events, frames[i].Events, bytes.Equal) {
			t.Errorf("the bytes of frame %d have changed", i)
		}
	}
	if conns := e.conns.list(); len(conns) != 1 || conns[0].claimed() != 0 {
		t.Errorf("%d connections, the first has bytes left", len(conns))
	}
}

// What the streams of one connection hold is bounded together.
func TestWatch_StreamsOfAConnectionHaveOneOwner(t *testing.T) {
	e := newReadyEdge(t, nil)
	first, _, conn := deafWatch(t, e)
	if _, err := pb.NewWatchClient(conn).Watch(within(t)); err != nil {
		t.Fatal(err)
	}
	second := e.watched(t)
	other, _, _ := deafWatch(t, e)
	if first.owner == nil || first.owner != second.owner || first.owner == other.owner {
		t.Errorf("owners %p and %p of one connection, %p of another", first.owner, second.owner, other.owner)
	}
}

func TestWatch_WhatWasLentComesBackWhenItsConnectionCloses(t *testing.T) {
	e := newReadyEdge(t, nil)
	s, _, conn := deafWatch(t, e)
	sendBlobs(s)
	eventually(t, "the transport holds something", func() bool { return s.lent.Load() > chunkBytes })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "everything is back", func() bool { return s.lent.Load() == 0 })
}

// A client that does not read what its watches have been sent is cut off when that keeps others waiting, not before.
func TestStalled_WatchesThatAreNotReadAreCutOffWhileAllHoldMuch(t *testing.T) {
	e := newReadyEdge(t, nil)
	s, client, _ := deafWatch(t, e)
	sendBlobs(s)
	eventually(t, "the transport holds something", func() bool { return s.lent.Load() > chunkBytes })
	for range 3 {
		e.closeThoseStalled(answerStallMax)
	}
	if e.conns.size() != 1 {
		t.Fatal("it was cut off though nobody waits")
	}
	e.room.full.Store(true)
	eventually(t, "it is cut off", func() bool {
		e.closeThoseStalled(answerStallMax / 2)
		return s.lent.Load() == 0
	})
	for {
		if _, err := client.Recv(); err != nil {
			break
		}
	}
}

// What waits in the room for a client that takes nothing counts as well: gRPC may hold nothing that is large.
func TestStalled_AClientThatTakesNothingSmallIsCutOffToo(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.full.Store(true)
	_, client, _ := deafWatch(t, e)
	conn := e.conns.list()[0]
	conn.watches.Hold(1000)
	for range 10 {
		e.closeThoseStalled(answerStallMax - time.Second)
		conn.watches.LetGo(1)
	}
	if !slices.Contains(e.conns.list(), conn) {
		t.Fatal("a client that takes little was cut off")
	}
	e.closeThoseStalled(answerStallMax)
	e.closeThoseStalled(answerStallMax)
	if slices.Contains(e.conns.list(), conn) {
		t.Fatal("it was not cut off")
	}
	if _, err := client.Recv(); err == nil {
		t.Error("the stream goes on")
	}
}

// A claim that makes no progress ends its connection, though its client reads other answers on it, and though gRPC may
// have lost what it is for.
func TestStalled_OneAnswerThatIsStuckIsCutOffThoughOthersAreRead(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.full.Store(true)
	s, client, _ := deafWatch(t, e)
	s.frames <- WatchFrame{Revision: 4, Created: true}
	if _, err := client.Recv(); err != nil {
		t.Fatal(err)
	}
	conn := e.conns.list()[0]
	const look, bytes = answerStallCheck, 1000
	stuck := newClaimOn(conn, watchAccount{s}, bytes)
	moving := newClaimOn(conn, watchAccount{s}, 2*bytes)
	s.Lend(3 * bytes)
	for passed := time.Duration(0); passed < answerStuckMax; passed += look {
		e.closeThoseStalled(look)
		moving.giveBack(1)
	}
	if !slices.Contains(e.conns.list(), conn) {
		t.Fatal("it was cut off too early")
	}
	e.closeThoseStalled(look)
	if slices.Contains(e.conns.list(), conn) || stuck.left.Load() != 0 {
		t.Fatal("it was not cut off")
	}
	if n := s.lent.Load(); n != 0 {
		t.Errorf("%d bytes are still lent", n)
	}
}

// What a client takes slowly is given back bit by bit, and small pieces behind the last large one are counted, too.
func TestCodec_WatchResponsesAreGivenBackBufferByBuffer(t *testing.T) {
	for name, pieces := range map[string][][]byte{
		"one large value":                 blob(1<<20, 1<<20),
		"many small events":               blob(1<<20, 100),
		"small ones behind the large one": append(blob(2*chunkBytes, 2*chunkBytes), blob(4*chunkBytes, 500)...),
	} {
		s := &fakeStream{owner: new(WatchOwner)}
		frame := WatchFrame{Revision: 4, Events: pieces}
		a := &answer{frame: &frame, body: proto.Body{Pieces: pieces}}
		total := a.body.Len()
		s.Lend(total)
		a.entered = newClaimOn(nil, watchAccount{s}, int64(total))
		out, err := newTestCodec().Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		unwritten := out.Len()
		for _, b := range out {
			if b.Len() > 2*chunkBytes {
				t.Fatalf("%s: a buffer of %d bytes", name, b.Len())
			}
			unwritten -= b.Len()
			b.Free()
			// Up to 1 KiB and the prefix may not be told of.
			if most := int64(unwritten + 2*chunkBytes); s.lent.Load() > most {
				t.Fatalf("%s: %d bytes are lent though only %d are not written", name, s.lent.Load(), unwritten)
			}
			if least := int64(unwritten - 2*pooledBytesMin); s.lent.Load() < least {
				t.Fatalf("%s: %d bytes are lent though %d are not written", name, s.lent.Load(), unwritten)
			}
		}
		if n := s.lent.Load(); n != 0 {
			t.Errorf("%s: %d bytes are left", name, n)
		}
	}
}

// What the system gets rid of may be of ordinary answers or of watch responses: it excuses the one kind only while the
// other stands still.
func TestStalled_WhatOneKindTakesDoesNotExcuseTheOther(t *testing.T) {
	const look = answerStallCheck
	for _, c := range []struct {
		name           string
		wanted         wantedRoom
		watched, taken bool // what the client takes of either
		stalls         bool
	}{
		{"answers, nothing else moves", wantedRoom{answers: true}, false, false, false},
		{"answers, watches move", wantedRoom{answers: true}, true, false, true},
		{"answers move", wantedRoom{answers: true}, true, true, false},
		{"watches, nothing else moves", wantedRoom{watches: true}, false, false, false},
		{"watches, answers move", wantedRoom{watches: true}, false, true, true},
		{"watches move", wantedRoom{watches: true}, true, true, false},
	} {
		conn, _ := enteredConn(t)
		l := newLedger(1 << 20)
		l.enterNow(1000)
		newClaimOn(conn, l, 1000)
		conn.watches.Hold(1000)
		var since time.Duration
		for range 10 {
			conn.unsentSeen = 1 << 30 // the system has got rid of much
			if c.watched {
				conn.watches.LetGo(1)
			}
			if c.taken {
				conn.taken.Add(1)
			}
			_, since = conn.stalled(c.wanted, look)
		}
		if stalls := since >= answerStallMax; stalls != c.stalls {
			t.Errorf("%s: stalled for %v", c.name, since)
		}
	}
}
