package gateway

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress what they send, as with etcd
)

// answeredPlainly is a handler whose answers are not compressed. gRPC would compress those to a client that compresses
// its requests, as etcd does: for that it copies each answer whole, which nothing bounds, and lists cost many times the
// CPU. A client that can compress reads plain messages, too.
func answeredPlainly(handle grpc.StreamHandler) grpc.StreamHandler {
	return func(server any, stream grpc.ServerStream) error {
		ctx := stream.Context()
		wire, known := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
		if known && wire.RecvCompress() != "" {
			if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
				return err
			}
		}
		return handle(server, stream)
	}
}
