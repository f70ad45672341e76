package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"

	"troupe/proto"
)

// headerClusterID tells other members which cluster answers; they refuse to join another one.
const headerClusterID = "X-Etcd-Cluster-ID"

// peerMux serves what etcd members and tools read over plain HTTP on the peer port. The raft streams come with the
// cluster. What is not here is 404: 403 and 410 would make an etcd member believe it was removed.
func (s *Server) peerMux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/version", s.serveVersion)
	mux.Handle("/members", onlyGet(http.HandlerFunc(s.serveMembers)))
	mux.Handle("/downgrade/enabled", onlyGet(http.HandlerFunc(s.serveDowngradeEnabled)))
	return mux
}

// serveMembers lists the members as JSON, as etcd members read it when they join.
func (s *Server) serveMembers(w http.ResponseWriter, _ *http.Request) {
	members := []proto.Member{}
	if m := s.cfg.Store.State().Membership; m != nil {
		members = m.Members
	}
	w.Header().Set(headerClusterID, s.cfg.Cluster.String())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(members)
}

// versionAnswer is the body of /version: etcd's three fields, and ours beside them.
type versionAnswer struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	Troupe  string `json:"troupe,omitempty"`
}

// serveVersion answers /version on both ports.
func (s *Server) serveVersion(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	cluster, _ := s.clusterVersion()
	answer := versionAnswer{Server: s.cfg.Versions.Server, Cluster: cmp.Or(cluster, "not_decided"),
		Storage: cmp.Or(s.cfg.Store.StorageVersion(), "unknown"), Troupe: s.cfg.Versions.Troupe}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
