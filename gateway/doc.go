// Package gateway is the edge of the daemon: it listens, speaks gRPC and HTTP, checks requests, and turns answers and
// errors of the rooms behind it into what an etcd client expects on the wire, to the byte.
//
// It owns the listeners, the sessions, the bytes of answers in flight and the draining at the end. It owns no state of
// the cluster and never caches any: each answer is made from one published view of the store and raft's published
// status.
//
//	                      +- gRPC: codec.go services.go intercept.go -> kv.go watch.go lease.go cluster.go ...
//	port --- listener.go -+
//	                      +- HTTP/1.1: health.go debug.go            peer port --- peerhttp.go
//	                                   jsongateway.go -> local.go -> the handlers of gRPC
//
// A handler runs in its own goroutine, the only kind that may wait for an actor. It admits the request (intercept.go:
// ready, not draining, metadata), checks it (validate.go), checks the quota (quota.go), then asks raft or reads a view
// of the store, and returns either an answer, which codec.go splices from stored bytes, or a domain error, which
// errors.go turns into a status. Nothing else in the project knows gRPC's codes.
//
// The order of duties per request is etcd's, because clients see it: the quota before the validation, the validation
// before anything that costs. What is stricter than etcd happens here, before a proposal, never at apply.
//
// A stop (drain.go) refuses what is new, waits for what was admitted, and then closes every connection that was
// accepted (connections.go), because the servers of gRPC and HTTP do not know those that have not spoken yet.
//
// The hot path logs nothing, starts no timer and makes no context: raft's own sweep times requests out. Counters are
// resolved per method when the server is made (rpcmetrics.go), not per request.
//
// Everything a client can make grow has a bound in limits.go with its reason.
package gateway
