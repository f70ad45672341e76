package badinput

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

// rawCodec sends bytes as they are.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var unaryMethods = []string{
	"/etcdserverpb.KV/Range", "/etcdserverpb.KV/Put", "/etcdserverpb.KV/DeleteRange", "/etcdserverpb.KV/Txn",
	"/etcdserverpb.KV/Compact", "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseRevoke",
	"/etcdserverpb.Lease/LeaseTimeToLive", "/etcdserverpb.Lease/LeaseLeases", "/etcdserverpb.Maintenance/Status",
	"/etcdserverpb.Maintenance/HashKV", "/etcdserverpb.Maintenance/Alarm", "/etcdserverpb.Cluster/MemberList",
	"/etcdserverpb.Nothing/Nothing", "/etcdserverpb.KV/Nothing", "/grpc.health.v1.Health/Check",
}

func TestBadInput_RandomBytesAsMessages(t *testing.T) {
	truncated, err := proto.Marshal(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte("key"), Value: []byte("value")},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	surviving(t, func(s *harness.Server) {
		conn := s.Conn(t)
		for _, method := range unaryMethods {
			for n := range 40 {
				payload := make([]byte, n*7)
				rand.Read(payload)
				if n < len(truncated) && n%2 == 0 {
					payload = truncated[:len(truncated)-n]
				}
				var reply []byte
				err := conn.Invoke(harness.Context(t, limit), method, payload, &reply, grpc.ForceCodecV2(rawCodec{}))
				if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
					t.Fatalf("%s with %x: %v", method, payload, err)
				}
			}
		}
	})
}

// An undecodable message is refused by the RPC layer with one code, whatever the method.
func TestBadInput_UndecodableMessageIsInternal(t *testing.T) {
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	surviving(t, func(s *harness.Server) {
		got, want := s.Conn(t), etcd.Conn(t)
		for _, method := range unaryMethods {
			var reply []byte
			option := grpc.ForceCodecV2(rawCodec{})
			errGot := got.Invoke(harness.Context(t, limit), method, []byte{0x0a, 0xff}, &reply, option)
			errWant := want.Invoke(harness.Context(t, limit), method, []byte{0x0a, 0xff}, &reply, option)
			if status.Code(errGot) != status.Code(errWant) {
				t.Errorf("%s: troupe says %v, etcd %v", method, errGot, errWant)
			}
		}
	})
}

// rawCall makes one gRPC call over plain HTTP/2, which lets any header value through.
func rawCall(t *testing.T, s *harness.Server, method string, header map[string]string, body []byte) http.Header {
	t.Helper()
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	frame := append([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
	request, err := http.NewRequestWithContext(harness.Context(t, limit), http.MethodPost, s.URL+method,
		bytes.NewReader(append(frame, body...)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	for key, value := range header {
		request.Header.Set(key, value)
	}
	r, err := transport.RoundTrip(request)
	if err != nil {
		return http.Header{"Failed": []string{"the call"}}
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body) // trailers come after the body; it may be cut off
	if r.Trailer.Get("Grpc-Status") != "" {
		return r.Trailer
	}
	return r.Header
}

func TestBadInput_BrokenMetadata(t *testing.T) {
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	body, err := proto.Marshal(&pb.RangeRequest{Key: []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	surviving(t, func(s *harness.Server) {
		for _, header := range []map[string]string{
			{"client-api-version": "\xff\xfe"}, {"client-api-version": "3.7\x80"}, {"token": "\xff"},
			{"hasleader": "\xff"}, {"authorization": "Bearer \xff\xff"}, {"some-bin": "no base64!"},
			{"grpc-timeout": "soon"}, {"grpc-encoding": "nothing"}, {"client-api-version": ""},
		} {
			got := rawCall(t, s, "/etcdserverpb.KV/Range", header, body)
			want := rawCall(t, etcd, "/etcdserverpb.KV/Range", header, body)
			if want.Get("Grpc-Status") == "" && want.Get("Failed") == "" {
				t.Errorf("%q: the call has no outcome at all: %v", header, want)
			}
			for _, key := range []string{"Grpc-Status", "Grpc-Message", "Failed"} {
				if got.Get(key) != want.Get(key) {
					t.Errorf("%q: %s is %q, with etcd %q", header, key, got.Get(key), want.Get(key))
				}
			}
		}
	})
}

func TestBadInput_ManyClientVersionsDoNotGrowTheMetricsWithoutBound(t *testing.T) {
	harness.TroupeOnly(t, "etcd keeps one series for each text that a client calls its version")
	surviving(t, func(s *harness.Server) {
		conn := s.Conn(t)
		for n := range 3000 {
			ctx := metadata.AppendToOutgoingContext(harness.Context(t, limit), "client-api-version", fmt.Sprint("v", n))
			if _, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("a")}); err != nil {
				t.Fatalf("range: %v", err)
			}
		}
		r, err := http.Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\netcd_server_client_requests_total{")); n > 500 {
			t.Errorf("%d series from invented client versions", n)
		}
	})
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func TestBadInput_GarbageAndHalfOpenConnections(t *testing.T) {
	random := make([]byte, 100_000)
	rand.Read(random)
	texts := map[string][]byte{
		"nothing": nil, "half a preface": []byte(preface[:10]), "preface only": []byte(preface),
		"preface and random": append([]byte(preface), random...), "random": random,
		"TLS hello":        {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03},
		"HTTP without end": []byte("GET /health HTTP/1.1\r\nHost: a\r\nX-Long: "),
		"HTTP nonsense":    []byte("NONSENSE\r\n\r\n"), "zeros": make([]byte, 100_000),
		"frame of 16 MiB": append([]byte(preface), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1),
		"settings and headers without end": append([]byte(preface), 0, 0, 0, 4, 0, 0, 0, 0, 0,
			0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82),
	}
	surviving(t, func(s *harness.Server) {
		var open []net.Conn
		for name, text := range texts {
			for range 20 { // some closed at once, some left open until the end
				conn, err := net.Dial("tcp", s.Endpoint())
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := conn.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				_, _ = conn.Write(text) // the server may close at any moment
				if len(open)%2 == 0 {
					conn.Close()
				}
				open = append(open, conn)
			}
		}
		ctx := harness.Context(t, 10*time.Second)
		if _, err := pb.NewKVClient(s.Conn(t)).Range(ctx, &pb.RangeRequest{Key: []byte("a")}); err != nil {
			t.Errorf("with %d broken connections: %v", len(open), err)
		}
		for _, conn := range open {
			conn.Close()
		}
	})
}

// The peer port is as public as the client port.
func TestBadInput_GarbageOnThePeerPort(t *testing.T) {
	surviving(t, func(s *harness.Server) {
		address := s.PeerURL[len("http://"):]
		for _, text := range []string{
			"", "\x00\x00\x00", preface, "GET /raft/stream/message/1 HTTP/1.1\r\n\r\n",
			"POST /raft HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
			"POST /raft/snapshot HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789",
		} {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatalf("peer port: %v", err)
			}
			_, _ = conn.Write([]byte(text)) // as above
			conn.Close()
		}
	})
}
