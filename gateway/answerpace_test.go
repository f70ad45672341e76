package gateway

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// newImpatientEdge is a ready edge whose clients must read at once.
func newImpatientEdge(t *testing.T) *edge {
	e := newBoundedEdge(t, nil, func(s *Server) { s.pace.answer, s.pace.stream = time.Second/2, time.Second/2 })
	e.SetReady()
	return e
}

// A client that asks for page after page and reads none keeps neither its place nor a handler.
func TestPages_AClientThatNeverReadsItsAnswersIsCutOff(t *testing.T) {
	e := newImpatientEdge(t)
	c := say(t, e.addr, "")
	_ = c.SetWriteDeadline(time.Now().Add(testPatience))
	asked, err := 0, error(nil)
	for requests := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 1000); err == nil; asked++ {
		_, err = io.WriteString(c, requests)
	}
	if os.IsTimeout(err) {
		t.Errorf("it has asked %d thousand times and waits: %v", asked, err)
	}
	eventually(t, "the place and the handler are free", func() bool {
		return e.gates.pages.inside() == 0 && e.conns.size() == 0 && e.pages.count.Load() == 0
	})
}

// The client of a stream may rest as long as nothing waits for it, over HTTP and over a websocket. One that takes
// nothing of what does is cut off.
func TestJSON_AStreamThatIsNotReadIsCutOffAndASilentOneIsNot(t *testing.T) {
	e := newImpatientEdge(t)
	create := `{"create_request":{"key":"aw=="}}`
	quiet, err := http.Post("http://"+e.addr+"/v3/watch", "application/json", strings.NewReader(create))
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Body.Close()
	quietStream, lines := <-e.room.streams, bufio.NewReader(quiet.Body)
	open := func() *websocket.Conn {
		socket, _, err := websocket.Dial(within(t), "ws://"+e.addr+"/v3/watch", nil)
		if err == nil {
			err = socket.Write(within(t), websocket.MessageText, []byte(create))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.CloseNow() })
		return socket
	}
	socket := open()
	socketStream := <-e.room.streams
	frameOf := func(value int) WatchFrame {
		event := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, value)}}
		return WatchFrame{Revision: 5, Events: [][]byte{encode(t, &pb.WatchResponse{Events: []*mvccpb.Event{event}})}}
	}
	openJSON(t, e, "/v3/watch", create, len(create))
	unread := []*fakeStream{<-e.room.streams}
	open()
	unread = append(unread, <-e.room.streams)
	for _, stream := range unread {
		go func() {
			for range 16 {
				select {
				case stream.frames <- frameOf(2 << 20):
				case <-stream.closed:
				}
			}
		}()
		<-stream.closed // when the time of the others has long passed
	}
	quietStream.frames <- frameOf(1)
	socketStream.frames <- frameOf(1)
	for range 2 { // the answer to the creation, and the event
		if _, err := lines.ReadString('\n'); err != nil {
			t.Errorf("over HTTP: %v", err)
		}
		if _, _, err := socket.Read(within(t)); err != nil {
			t.Errorf("over a websocket: %v", err)
		}
	}
}
