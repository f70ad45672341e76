package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// handleConcurrency adds the paths of the services Lock and Election, for whose messages, which are ours, there are no
// generated handlers.
func (g *jsonGateway) handleConcurrency() error {
	return errors.Join(
		jsonUnary[proto.LockRequest, proto.LockResponse](g, "/v3/lock/lock", serviceLock, "Lock"),
		jsonUnary[proto.UnlockRequest, proto.UnlockResponse](g, "/v3/lock/unlock", serviceLock, "Unlock"),
		jsonUnary[proto.CampaignRequest, proto.CampaignResponse](g, "/v3/election/campaign", serviceElection, "Campaign"),
		jsonUnary[proto.ProclaimRequest, proto.ProclaimResponse](g, "/v3/election/proclaim", serviceElection, "Proclaim"),
		jsonUnary[proto.LeaderRequest, proto.LeaderResponse](g, "/v3/election/leader", serviceElection, "Leader"),
		jsonUnary[proto.ResignRequest, proto.ResignResponse](g, "/v3/election/resign", serviceElection, "Resign"),
		jsonStream[proto.LeaderRequest, proto.LeaderResponse](g, "/v3/election/observe", serviceElection, "Observe"),
	)
}

// message is what a pointer to a message type is.
type message[T any] interface {
	*T
	protobuf.Message
}

// jsonUnary adds the path of a unary method.
func jsonUnary[I, O any, PI message[I], PO message[O]](g *jsonGateway, path, service, name string) error {
	return g.handle(path, "/"+service+"/"+name, func(ctx context.Context, h *jsonHandling) error {
		in, out := PI(new(I)), PO(new(O))
		if err := h.read(in); err != nil {
			return err
		}
		var metadata runtime.ServerMetadata
		if err := g.server.local.Invoke(ctx, h.method, in, out, grpc.Header(&metadata.HeaderMD)); err != nil {
			return err
		}
		ctx = runtime.NewServerMetadataContext(ctx, metadata)
		runtime.ForwardResponseMessage(ctx, g.mux, h.writes, h.w, h.r, out)
		return nil
	})
}

// jsonStream adds the path of a method that answers one request with a stream.
func jsonStream[I, O any, PI message[I], PO message[O]](g *jsonGateway, path, service, name string) error {
	return g.handle(path, "/"+service+"/"+name, func(ctx context.Context, h *jsonHandling) error {
		in := PI(new(I))
		if err := h.read(in); err != nil {
			return err
		}
		stream, err := g.server.local.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, h.method)
		if err != nil {
			return err
		}
		if err := errors.Join(stream.SendMsg(in), stream.CloseSend()); err != nil {
			return err
		}
		header, err := stream.Header()
		if err != nil {
			return err
		}
		ctx = runtime.NewServerMetadataContext(ctx, runtime.ServerMetadata{HeaderMD: header})
		runtime.ForwardResponseStream(ctx, g.mux, h.writes, h.w, h.r, func() (protobuf.Message, error) {
			out := PO(new(O))
			return out, stream.RecvMsg(out)
		})
		return nil
	})
}

// jsonHandling is one request of such a path.
type jsonHandling struct {
	method        string
	w             http.ResponseWriter
	r             *http.Request
	reads, writes runtime.Marshaler
}

// read reads the one message of the body; an empty body is an empty message.
func (h *jsonHandling) read(in protobuf.Message) error {
	if err := h.reads.NewDecoder(h.r.Body).Decode(in); err != nil && !errors.Is(err, io.EOF) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	_, _ = io.Copy(io.Discard, h.r.Body)
	return nil
}

// handle adds a path. An error of run is the answer.
func (g *jsonGateway) handle(path, method string, run func(context.Context, *jsonHandling) error) error {
	return g.mux.HandlePath(http.MethodPost, path, func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		h := &jsonHandling{method: method, w: w, r: r}
		h.reads, h.writes = runtime.MarshalerForRequest(g.mux, r)
		ctx, err := runtime.AnnotateContext(r.Context(), g.mux, r, method, runtime.WithHTTPPathPattern(path))
		if err == nil {
			err = run(ctx, h)
		}
		if err != nil {
			runtime.HTTPError(r.Context(), g.mux, h.writes, w, r, err)
		}
	})
}
