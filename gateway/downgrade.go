package gateway

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
)

// downgrade checks, begins or cancels a downgrade of the cluster by one minor version. What follows from one that has
// begun is the leader's to do (raftactor/versions.go), and then each member's own (storeactor/storageversion.go).
func (s *Server) downgrade(ctx context.Context, r *pb.DowngradeRequest) (any, error) {
	switch r.Action {
	case pb.DowngradeRequest_VALIDATE:
		_, version, err := s.checkDowngrade(ctx, r.Version)
		return s.downgradeAnswer(version, err)
	case pb.DowngradeRequest_ENABLE:
		target, version, err := s.checkDowngrade(ctx, r.Version)
		if err != nil {
			s.cfg.Log.Warn().Err(err).Str("target-version", r.Version).Msg("reject downgrade request")
			return nil, err
		}
		return s.setDowngrade(ctx, version, &membershippb.DowngradeInfoSetRequest{Enabled: true, Ver: target.text()})
	case pb.DowngradeRequest_CANCEL:
		if err := s.linearize(ctx); err != nil {
			return nil, err
		}
		version, running := s.clusterVersion()
		if running == "" {
			s.cfg.Log.Warn().Msg("there is no downgrade to cancel, the request is answered as if there had been one")
			return s.downgradeAnswer(version, nil)
		}
		return s.setDowngrade(ctx, version, &membershippb.DowngradeInfoSetRequest{})
	}
	return nil, ErrUnknownMethod
}

// setDowngrade begins or ends a downgrade through the log. version is the cluster's before it, for the answer.
func (s *Server) setDowngrade(ctx context.Context, version string, r *membershippb.DowngradeInfoSetRequest) (any,
	error) {
	_, err := s.propose(ctx, kindDowngrade, &pb.InternalRaftRequest{DowngradeInfoSet: r})
	return s.downgradeAnswer(version, err)
}

func (s *Server) downgradeAnswer(version string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return &pb.DowngradeResponse{
		Header: s.pbHeader(s.cfg.Store.State().Revision), Version: shortVersion(version),
	}, nil
}

// clusterVersion gives the cluster version and the target of a running downgrade; each is empty when there is none.
func (s *Server) clusterVersion() (version, target string) {
	if m := s.cfg.Store.State().Membership; m != nil {
		return m.ClusterVersion, m.DowngradeTarget
	}
	return "", ""
}

// checkDowngrade refuses what cannot be the target of a downgrade now. The order of the checks is etcd's. It gives the
// target and the cluster version.
func (s *Server) checkDowngrade(ctx context.Context, text string) (target minorVersion, version string, err error) {
	target, ok := parseTarget(text)
	if !ok {
		return target, "", ErrDowngradeFormat
	}
	if err := s.linearize(ctx); err != nil {
		return target, "", err
	}
	version, running := s.clusterVersion()
	now, known := parseTarget(version)
	switch {
	case !known:
		return target, "", ErrClusterVersionUnknown
	case target != minorVersion{now.major, now.minor - 1}:
		return target, "", ErrDowngradeTarget
	case running != "":
		return target, "", ErrDowngradeRunning
	}
	return target, version, nil
}

// minorVersion is a version as far as compatibility goes.
type minorVersion struct{ major, minor int64 }

// text is the version as the log and the file have it.
func (v minorVersion) text() string {
	return strconv.FormatInt(v.major, 10) + "." + strconv.FormatInt(v.minor, 10) + ".0"
}

// parseTarget reads a version as etcd does: major.minor, or a whole semantic version, of which the rest is checked and
// dropped. Leading zeros are let through.
func parseTarget(text string) (minorVersion, bool) {
	if v, ok := parseSemantic(text); ok {
		return v, true
	}
	return parseSemantic(text + ".0")
}

func parseSemantic(text string) (v minorVersion, ok bool) {
	text, metadata, _ := strings.Cut(text, "+")
	text, release, _ := strings.Cut(text, "-")
	parts := strings.Split(text, ".")
	if len(parts) != 3 || !versionWords(metadata) || !versionWords(release) {
		return v, false
	}
	var patch int64
	for i, to := range []*int64{&v.major, &v.minor, &patch} {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil {
			return v, false
		}
		*to = n
	}
	return v, true
}

// versionWords reports whether the part of a version behind a sign is well formed: nothing, or words between dots.
func versionWords(text string) bool {
	if text == "" {
		return true
	}
	for word := range strings.SplitSeq(text, ".") {
		if word == "" || strings.Trim(word, "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
			return false
		}
	}
	return true
}

// shortVersion gives "major.minor" of a version, and what is none as it is.
func shortVersion(version string) string {
	if parts := strings.SplitN(version, ".", 3); len(parts) == 3 {
		return parts[0] + "." + parts[1]
	}
	return version
}

// serveDowngradeEnabled tells other members whether a downgrade runs: one of the next lower version may join then.
func (s *Server) serveDowngradeEnabled(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(headerClusterID, s.cfg.Cluster.String())
	if err := s.linearize(r.Context()); err != nil {
		http.Error(w, "failed linearized read: "+err.Error(), http.StatusInternalServerError)
		return
	}
	_, target := s.clusterVersion()
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, strconv.FormatBool(target != ""))
}
