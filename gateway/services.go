package gateway

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// The names of etcd's services. Dashboards and clients know them.
const (
	serviceKV          = "etcdserverpb.KV"
	serviceWatch       = "etcdserverpb.Watch"
	serviceLease       = "etcdserverpb.Lease"
	serviceCluster     = "etcdserverpb.Cluster"
	serviceMaintenance = "etcdserverpb.Maintenance"
	serviceAuth        = "etcdserverpb.Auth"
	serviceLock        = "v3lockpb.Lock"
	serviceElection    = "v3electionpb.Election"
	serviceHealth      = "grpc.health.v1.Health"
)

// registerServices makes the service descriptors. They are our own, under etcd's names, because the generated ones
// force every answer to be the message it stands for, and ours are spliced.
func (s *Server) registerServices() {
	s.registerKV()
	s.registerLease()
	s.registerMaintenance()
	s.registerCluster()
	s.registerAuth()
	s.registerLock()
	s.registerElection()
	s.registerHealth()
	if !s.cfg.DebugElsewhere {
		s.registerIntrospect(s.grpc)
	}
	s.register(serviceWatch, nil, s.streaming(rpcBidiStream, serviceWatch, "Watch", "watch", s.watch))
}

// register adds one service. Unary methods are registered as streams of one message each way, which is what gRPC makes
// of them anyway: so they send their answers themselves (unary).
func (s *Server) register(name string, methods []grpc.MethodDesc, streams ...grpc.StreamDesc) {
	for _, m := range methods {
		handler := func(_ any, stream grpc.ServerStream) error {
			_, err := m.Handler(stream, nil, nil, nil)
			return err
		}
		streams = append(streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: handler})
	}
	for i := range streams {
		desc := &streams[i]
		s.local.methods["/"+name+"/"+desc.StreamName] = *desc
		desc.Handler = answeredPlainly(desc.Handler)
	}
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: name,
		HandlerType: (*any)(nil),
		Streams:     streams,
		Metadata:    "rpc.proto",
	}, s)
}

// later is a handler for what this version does not serve yet: a clear answer instead of an unknown method.
func later[P any](context.Context, P) (any, error) { return nil, ErrNotImplemented }

// registerAuth answers the Auth service, which comes later.
func (s *Server) registerAuth() {
	const n = serviceAuth
	s.register(n, []grpc.MethodDesc{
		unary(s, n, "AuthEnable", later[*pb.AuthEnableRequest]),
		unary(s, n, "AuthDisable", later[*pb.AuthDisableRequest]),
		unary(s, n, "AuthStatus", later[*pb.AuthStatusRequest]),
		unary(s, n, "Authenticate", later[*pb.AuthenticateRequest]),
		unary(s, n, "UserAdd", later[*pb.AuthUserAddRequest]),
		unary(s, n, "UserGet", later[*pb.AuthUserGetRequest]),
		unary(s, n, "UserList", later[*pb.AuthUserListRequest]),
		unary(s, n, "UserDelete", later[*pb.AuthUserDeleteRequest]),
		unary(s, n, "UserChangePassword", later[*pb.AuthUserChangePasswordRequest]),
		unary(s, n, "UserGrantRole", later[*pb.AuthUserGrantRoleRequest]),
		unary(s, n, "UserRevokeRole", later[*pb.AuthUserRevokeRoleRequest]),
		unary(s, n, "RoleAdd", later[*pb.AuthRoleAddRequest]),
		unary(s, n, "RoleGet", later[*pb.AuthRoleGetRequest]),
		unary(s, n, "RoleList", later[*pb.AuthRoleListRequest]),
		unary(s, n, "RoleDelete", later[*pb.AuthRoleDeleteRequest]),
		unary(s, n, "RoleGrantPermission", later[*pb.AuthRoleGrantPermissionRequest]),
		unary(s, n, "RoleRevokePermission", later[*pb.AuthRoleRevokePermissionRequest]),
	})
}

// registerHealth serves gRPC health from grpc-go's own server, counted like the rest. It is answered before the member
// is ready and while it drains, with what is true then.
func (s *Server) registerHealth() {
	check := s.metrics.rpc.method(rpcUnary, serviceHealth, "Check")
	list := s.metrics.rpc.method(rpcUnary, serviceHealth, "List")
	watch := s.metrics.rpc.method(rpcServerStream, serviceHealth, "Watch")
	healthpb.RegisterHealthServer(s.grpc,
		&countedHealth{HealthServer: s.health, versions: &s.versions, check: check, list: list, watch: watch})
}

// countedHealth counts the calls of the health service.
type countedHealth struct {
	healthpb.HealthServer
	versions           *clientVersions
	check, list, watch *rpcMethod
}

// Check implements the health service.
func (h *countedHealth) Check(ctx context.Context, in *healthpb.HealthCheckRequest) (
	out *healthpb.HealthCheckResponse, err error) {
	defer h.check.call()(&err)
	if err := h.versions.count(ctx, "unary"); err != nil {
		return nil, wireError(err)
	}
	return h.HealthServer.Check(ctx, in)
}

// List implements the health service.
func (h *countedHealth) List(ctx context.Context, in *healthpb.HealthListRequest) (
	out *healthpb.HealthListResponse, err error) {
	defer h.list.call()(&err)
	if err := h.versions.count(ctx, "unary"); err != nil {
		return nil, wireError(err)
	}
	return h.HealthServer.List(ctx, in)
}

// Watch implements the health service.
func (h *countedHealth) Watch(in *healthpb.HealthCheckRequest,
	stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) (err error) {
	defer h.watch.call()(&err)
	if err := h.versions.count(stream.Context(), "stream"); err != nil {
		return wireError(err)
	}
	return h.HealthServer.Watch(in, countedHealthStream{stream, h.watch})
}

// countedHealthStream counts what is sent on a stream of the health service.
type countedHealthStream struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	method *rpcMethod
}

// Send implements grpc.ServerStreamingServer.
func (s countedHealthStream) Send(m *healthpb.HealthCheckResponse) error {
	s.method.sent.Inc()
	return s.ServerStreamingServer.Send(m)
}

// call counts one call of a method that is not ours; the result counts its end.
func (r *rpcMethod) call() (end func(err *error)) {
	started := time.Now()
	r.started.Inc()
	r.received.Inc()
	if r.unary {
		r.sent.Inc()
	}
	return func(err *error) {
		r.finished(*err, time.Since(started))
	}
}
