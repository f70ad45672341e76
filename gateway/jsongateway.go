package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The paths of the JSON gateway; those of a version that was never finished are taken for today's.
const (
	jsonPrefix    = "/v3/"
	jsonPrefixOld = "/v3beta/"
)

// jsonSequences are the paths whose clients may send several messages.
var jsonSequences = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// jsonGateway serves the services as JSON over HTTP. The handlers are those that come with the definitions of the API;
// they call the services over a localConn.
type jsonGateway struct {
	server *Server
	mux    *runtime.ServeMux
	codec  *jsonCodec
	// bodyBytes is what all bodies hold, and what they are decoded to, at most bodyBytesMax.
	bodyBytes    atomic.Int64
	bodyBytesMax int64
	// bodyTimeout is how long the body of a single request and the first message of any may take,
	// discardedMax how much is read of one that is refused.
	bodyTimeout  time.Duration
	discardedMax int64
}

func newJSONGateway(s *Server) (*jsonGateway, error) {
	g := &jsonGateway{server: s, codec: newJSONCodec(), bodyBytesMax: jsonBodiesBytesMax, bodyTimeout: jsonBodyTimeout,
		discardedMax: jsonDiscardedBytesMax}
	// Headers that begin with Grpc-Metadata- become metadata, as in etcd: nothing here trusts metadata because the
	// gateway would have set them, and clients over gRPC may send any.
	g.mux = runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, g.codec),
		runtime.WithErrorHandler(serveJSONError), runtime.WithLegacyHeaderMatching())
	s.cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "troupe_gateway_json_body_bytes",
		Help: "Bytes of large JSON bodies and of what they are decoded to."},
		func() float64 { return float64(g.bodyBytes.Load()) }))
	ctx, conn := context.Background(), grpc.ClientConnInterface(s.local)
	return g, errors.Join(
		gw.RegisterKVHandlerClient(ctx, g.mux, pb.NewKVClient(conn)),
		gw.RegisterWatchHandlerClient(ctx, g.mux, jsonWatchClient{pb.NewWatchClient(conn)}),
		gw.RegisterLeaseHandlerClient(ctx, g.mux, pb.NewLeaseClient(conn)),
		gw.RegisterClusterHandlerClient(ctx, g.mux, pb.NewClusterClient(conn)),
		gw.RegisterMaintenanceHandlerClient(ctx, g.mux, pb.NewMaintenanceClient(conn)),
		gw.RegisterAuthHandlerClient(ctx, g.mux, pb.NewAuthClient(conn)),
		g.handleConcurrency(),
	)
}

// serveJSONError answers with an error. What is wrong with the body is told with its own status: the generated handlers
// know only one for whatever keeps them from a message.
func serveJSONError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter,
	r *http.Request, err error) {
	if call := jsonCallOf(r.Context()); call != nil {
		if failed := call.failed(); failed != nil {
			err = failed
		}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}

// ServeHTTP serves one request: a call with its answer, or a stream of answers, or a websocket with either.
func (g *jsonGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := g.server
	conn := connectionOf(r.Context())
	if conn != nil && !conn.move(&s.gates.json) {
		s.sayRejected(&s.gates.json)
		w.Header().Set("Connection", "close")
		serveJSONError(r.Context(), g.mux, g.codec, w, r,
			status.Error(codes.ResourceExhausted, "etcdserver: too many requests"))
		return
	}
	// The server ends the context of a request when it cannot read on, before whoever reads learns why. So the call has a
	// context of its own, and its reader ends it with the reason.
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	call := &jsonCall{server: s, conn: conn, end: end, streams: jsonSequences[r.URL.Path]}
	call.paced, _ = w.(*pacedWriter)
	call.body = &jsonBody{from: r.Body, call: call, gateway: g, request: r.Context(),
		most: int64(jsonBodyFactor * s.receivedBytesMax())}
	defer context.AfterFunc(r.Context(), call.body.requestEnded)()
	r = r.WithContext(context.WithValue(ctx, jsonCallKey{}, call))
	r.Body = call.body
	if isWebsocket(r) {
		g.serveWebsocket(w, r, call)
		return
	}
	g.serveHTTP(w, r, call)
}

// serveHTTP serves a request that is no websocket.
func (g *jsonGateway) serveHTTP(w http.ResponseWriter, r *http.Request, call *jsonCall) {
	deadlines := bodyDeadlines{http.NewResponseController(w), g.bodyTimeout}
	deadlines.begin()
	if call.streams {
		call.whenFirst = deadlines.lift
		// Otherwise the server reads the rest of the body before it answers, and a client that sends its next message when
		// it has the answer to the last waits for ever.
		_ = deadlines.EnableFullDuplex()
	} else {
		call.whenBodyRead = deadlines.lift
	}
	defer func() {
		call.finish()
		switch {
		case !call.body.sending():
		case status.Code(call.failed()) == codes.ResourceExhausted:
			// A client that is still sending when the connection is closed does not see why.
			_ = deadlines.Flush()
			deadlines.begin()
			_, _ = io.CopyN(io.Discard, call.body.from, g.discardedMax)
		case call.streams:
			deadlines.stop() // nobody answers what still comes, so nobody waits for it
			call.body.awaitReader()
			if call.conn != nil {
				call.conn.spent.Store(true)
			}
		}
	}()
	g.mux.ServeHTTP(&jsonWriter{ResponseWriter: w, call: call}, r)
}

// rewriteOld serves the paths of /v3beta/ as those of /v3/.
func rewriteOld(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, jsonPrefixOld); ok {
			r.URL.Path = jsonPrefix + rest
			r.URL.RawPath = ""
		}
		next.ServeHTTP(w, r)
	})
}
