package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	model "troupe/proto"
)

func TestParseTarget_ReadsVersionsAsEtcdDoes(t *testing.T) {
	for text, want := range map[string]string{
		"3.6": "3.6.0", "3.6.0": "3.6.0", "3.6.99": "3.6.0", "3.06": "3.6.0", "03.6.0": "3.6.0", "3.6.0-alpha": "3.6.0",
		"3.6.0-alpha+x": "3.6.0", "3.6.0+meta": "3.6.0", "3.6.0-": "3.6.0", "3.6.0+": "3.6.0", "3.6.0-01": "3.6.0",
		"3.6.0+a-b": "3.6.0", "3.6.0-a.b+c.d": "3.6.0", "3.6.9223372036854775807": "3.6.0", "2.1": "2.1.0",
		"": "", "3": "", "v3.6": "", "3.6.0.0": "", "3.6.": "", ".3.6": "", " 3.6": "", "3.6 ": "", "3.6+meta": "",
		"3.6-rc.1": "", "3.6.x": "", "-3.6.0": "", "3.-6.0": "", "3.6.-1": "", "+3.6.0": "", "99999999999999999999.6.0": "",
		"3.6.9223372036854775808": "", "3.6.0-a_b": "", "3.6.0-é": "", "abc": "", "3,6": "", "0x3.6.0": "", "3_0.6.0": "",
		"3.6\n": "", "3.6.0-a..b": "", "3.6.0-.": "", "3.6.0+a+b": "", "3.6.0+_": "", "3.6.0-a b": "", "3.6.0+..": "",
	} {
		got := ""
		if v, ok := parseTarget(text); ok {
			got = v.text()
		}
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// The order of the checks is what a client sees; the same table runs beside etcd in integration/downgrade.
func TestDowngrade_ChecksInEtcdsOrderAndProposesOnlyThen(t *testing.T) {
	const (
		format  = "etcdserver: wrong downgrade target version format"
		target  = "etcdserver: invalid downgrade target version"
		running = "etcdserver: cluster has a downgrade job in progress"
		unknown = "etcdserver: cluster version not found during downgrade"
	)
	e := newReadyEdge(t, nil)
	m, ctx := pb.NewMaintenanceClient(e.conn), within(t)
	for _, c := range []struct {
		cluster, running string
		action           pb.DowngradeRequest_DowngradeAction
		version          string
		code             codes.Code
		text             string
		proposed         *pb.InternalRaftRequest
		answered         string
	}{
		{"3.7.0", "", pb.DowngradeRequest_VALIDATE, "3.6", codes.OK, "", nil, "3.7"},
		{"3.7.0", "", pb.DowngradeRequest_VALIDATE, "3.5", codes.InvalidArgument, target, nil, ""},
		{"3.7.0", "", pb.DowngradeRequest_VALIDATE, "x", codes.InvalidArgument, format, nil, ""},
		{"", "", pb.DowngradeRequest_VALIDATE, "3.6", codes.FailedPrecondition, unknown, nil, ""},
		{"", "", pb.DowngradeRequest_VALIDATE, "x", codes.InvalidArgument, format, nil, ""},
		{"3.6.0", "3.6.0", pb.DowngradeRequest_VALIDATE, "3.5", codes.FailedPrecondition, running, nil, ""},
		{"3.6.0", "3.6.0", pb.DowngradeRequest_VALIDATE, "3.6", codes.InvalidArgument, target, nil, ""},
		{"3.7.0", "3.6.0", pb.DowngradeRequest_ENABLE, "3.6", codes.FailedPrecondition, running, nil, ""},
		{"3.7.0", "", pb.DowngradeRequest_ENABLE, "3.8", codes.InvalidArgument, target, nil, ""},
		{"3.7.0", "", pb.DowngradeRequest_ENABLE, "3.6.4", codes.OK, "", downgradeRequest(true, "3.6.0"), "3.7"},
		{"3.6.0", "3.6.0", pb.DowngradeRequest_CANCEL, "nonsense", codes.OK, "", downgradeRequest(false, ""), "3.6"},
		{"3.7.0", "", pb.DowngradeRequest_CANCEL, "", codes.OK, "", nil, "3.7"},
		{"3.7.0", "", 3, "3.6", codes.Unknown, "etcdserver: unknown method", nil, ""},
		{"3.7.0", "", -1, "", codes.Unknown, "etcdserver: unknown method", nil, ""},
	} {
		e.room.set(func() {
			e.room.proposals = nil
			e.room.state.Membership = &model.Membership{ClusterID: 5, ClusterVersion: c.cluster, DowngradeTarget: c.running}
			e.room.proposeFn = func(*pb.InternalRaftRequest) (*model.Result, error) { return &model.Result{}, nil }
		})
		r, err := m.Downgrade(ctx, &pb.DowngradeRequest{Action: c.action, Version: c.version})
		wantStatus(t, err, c.code, c.text)
		var proposals []*pb.InternalRaftRequest
		e.room.set(func() { proposals = e.room.proposals })
		switch {
		case c.proposed == nil && len(proposals) > 0, c.proposed != nil && len(proposals) != 1,
			c.proposed != nil && !proto.Equal(proposals[0], c.proposed):
			t.Errorf("%v %q: proposed was %v", c.action, c.version, proposals)
		}
		if err == nil && (r.Version != c.answered || r.Header.GetMemberId() != 7 || r.Header.GetRaftTerm() != 3) {
			t.Errorf("%v %q: answer %v", c.action, c.version, r)
		}
	}
}

func downgradeRequest(enabled bool, version string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{DowngradeInfoSet: &membershippb.DowngradeInfoSetRequest{Enabled: enabled, Ver: version}}
}

// A cancel that was not made must not be answered as one that was: etcd logs the error and says OK.
func TestDowngrade_AFailedCancelIsNoSuccess(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() {
		e.room.state.Membership = &model.Membership{ClusterID: 5, ClusterVersion: "3.6.0", DowngradeTarget: "3.6.0"}
		e.room.proposeFn = func(*pb.InternalRaftRequest) (*model.Result, error) { return nil, errors.New("not made") }
	})
	_, err := pb.NewMaintenanceClient(e.conn).Downgrade(within(t), &pb.DowngradeRequest{
		Action: pb.DowngradeRequest_CANCEL})
	wantStatus(t, err, codes.Unknown, "not made")
}

func TestDowngrade_PeersAreToldWhetherOneRuns(t *testing.T) {
	e := newReadyEdge(t, nil)
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		e.peerMux().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/downgrade/enabled", nil))
		return w
	}
	for target, want := range map[string]string{"": "false", "3.6.0": "true"} {
		e.room.set(func() {
			e.room.state.Membership = &model.Membership{ClusterID: 5, ClusterVersion: "3.6.0", DowngradeTarget: target}
		})
		if w := ask(); w.Body.String() != want || w.Code != http.StatusOK ||
			w.Header().Get(headerClusterID) != model.ClusterID(5).String() {
			t.Errorf("target %q: %d %q %v", target, w.Code, w.Body, w.Header())
		}
	}
	e.room.set(func() { e.room.readErr = errors.New("no quorum") })
	if w := ask(); w.Code != http.StatusInternalServerError {
		t.Errorf("without a quorum: %d", w.Code)
	}
}
