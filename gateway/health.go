package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"troupe/raftactor"
)

// The checks have etcd's names; probes ask for them one by one.
const (
	checkDataCorruption   = "data_corruption"
	checkSerializableRead = "serializable_read"
	checkLinearizableRead = "linearizable_read"
	checkNonLearner       = "non_learner"
	// checkDisk is ours: CheckQuorum does not see a leader's own disk, so that readyz names it.
	checkDisk = "disk"
	// checkSpace is ours: etcd's readyz says nothing of NOSPACE. Reads are served then, and so is whoever wants to free
	// space, so that a member without space stays ready, and says what is wrong.
	checkSpace = "space"
)

// check is one named health check.
type check struct {
	name string
	run  func(context.Context) error
	// warns says that a failure is shown, but does not make the whole fail. Asked for by name it does.
	warns bool
}

// liveChecks are the checks of /livez, readyChecks those of /readyz.
func (s *Server) liveChecks() []check {
	return []check{{name: checkSerializableRead, run: s.checkSerializable}}
}

func (s *Server) readyChecks() []check {
	return []check{
		{name: checkDataCorruption, run: s.checkCorruption},
		{name: checkSerializableRead, run: s.checkServedSerializable},
		{name: checkLinearizableRead, run: s.checkLinearizable},
		{name: checkNonLearner, run: s.checkVoter},
		{name: checkDisk, run: s.checkLogDisk},
		{name: checkSpace, run: s.checkSpace, warns: true},
	}
}

func (s *Server) checkCorruption(context.Context) error {
	if s.alarmed(pb.AlarmType_CORRUPT) {
		return errors.New("alarm activated: CORRUPT")
	}
	return nil
}

func (s *Server) checkSpace(context.Context) error {
	if s.alarmed(pb.AlarmType_NOSPACE) {
		return errors.New("alarm activated: NOSPACE: puts are refused until space is freed and the alarm is disarmed")
	}
	if s.cfg.Raft.Status().LogFull {
		return errors.New("the disk of the log is full: writes are refused until space is freed on it")
	}
	return s.checkFileDisk()
}

// alarmed reports whether any member has raised the alarm.
func (s *Server) alarmed(kind pb.AlarmType) bool {
	return slices.ContainsFunc(s.cfg.Store.State().Alarms, func(a *pb.AlarmMember) bool { return a.Alarm == kind })
}

// probeRange is the read that checks make: the first key, without its value.
func probeRange() *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Limit: 1, KeysOnly: true, Serializable: true}
}

func (s *Server) checkSerializable(ctx context.Context) error { return s.probeRead(ctx, true) }

// probeRead reads as a client would, and counts as one.
func (s *Server) probeRead(ctx context.Context, serializable bool) error {
	began := time.Now()
	err := s.probeState(ctx, serializable)
	took := time.Since(began)
	s.metrics.requests.observe(kindRange, took, err == nil)
	s.cfg.Store.NoteRead(took)
	return err
}

func (s *Server) probeState(ctx context.Context, serializable bool) error {
	if !serializable {
		if err := s.linearize(ctx); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = raftactor.ErrTimeout // the probe's deadline is shorter than a request's, and means the same
			}
			return errors.New(status.Convert(wireError(err)).Message())
		}
	}
	began := time.Now()
	result, err := s.cfg.Store.Range(ctx, probeRange())
	s.metrics.observeRange(time.Since(began), err)
	if err == nil {
		release(result)
	}
	return err
}

// checkServedSerializable is checkSerializable for readyz: a client's read waits until the member is ready, which after
// a restart without a quorum may be never, and is refused when it stops. livez does not ask for that: a restart would
// help neither.
func (s *Server) checkServedSerializable(ctx context.Context) error {
	if err := s.checkServing(); err != nil {
		return err
	}
	return s.probeRead(ctx, true)
}

func (s *Server) checkLinearizable(ctx context.Context) error {
	if err := s.checkServing(); err != nil {
		return err
	}
	return s.probeRead(ctx, false)
}

// checkServing says why no request is served, if so.
func (s *Server) checkServing() error {
	switch {
	case s.isDraining():
		return errors.New("the member is stopping")
	case !s.isReady.Load():
		return errors.New("the member is starting, and serves no request until it has found a quorum")
	}
	return nil
}

func (s *Server) checkVoter(context.Context) error {
	if s.cfg.Raft.Status().Learner {
		return errors.New("not ready: local node is learner")
	}
	return nil
}

func (s *Server) checkLogDisk(context.Context) error {
	if ticks := s.cfg.Raft.Status().DiskStalledTicks; ticks > 0 {
		return fmt.Errorf("the disk of the log has not answered for %d heartbeat intervals", ticks)
	}
	return nil
}

// registerProbes adds /livez and /readyz with a path for each of their checks, and /health.
func (s *Server) registerProbes(mux *http.ServeMux) {
	for kind, checks := range map[string][]check{"livez": s.liveChecks(), "readyz": s.readyChecks()} {
		mux.Handle("/"+kind, onlyGet(s.probe(kind, checks)))
		for _, c := range checks {
			mux.Handle("/"+kind+"/"+c.name, onlyGet(s.probe(kind, []check{c})))
		}
	}
	mux.Handle("/health", onlyGet(http.HandlerFunc(s.serveHealth)))
}

// onlyGet refuses other methods as etcd does.
func onlyGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// probe runs checks and answers in etcd's words: the list of results when one failed or when asked for, else "ok". A
// check that is asked for by name can neither be excluded nor only warn.
func (s *Server) probe(kind string, checks []check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		query := r.URL.Query()
		_, verbose := query["verbose"]
		single := len(checks) == 1 && strings.HasSuffix(r.URL.Path, "/"+checks[0].name)
		var lines strings.Builder
		failed := false
		for _, c := range checks {
			if !single && slices.Contains(query["exclude"], c.name) {
				continue
			}
			err := c.run(ctx)
			s.countCheck(kind, c.name, err)
			switch {
			case err == nil:
				fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
			case c.warns && !single:
				fmt.Fprintf(&lines, "[!]%s warns: %v\n", c.name, err)
			default:
				failed = true
				fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.name, err)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if failed {
			s.sayUnready(kind, lines.String())
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, lines.String())
			return
		}
		if !verbose {
			lines.Reset()
		}
		fmt.Fprint(w, lines.String(), "ok\n")
	})
}

// sayUnready logs why a probe was told that the member is not well; lines are the results of its checks.
func (s *Server) sayUnready(kind, lines string) {
	if !s.probeLines.allow(time.Now()) {
		return
	}
	var failed []string
	for line := range strings.SplitSeq(lines, "\n") {
		if reason, ok := strings.CutPrefix(line, "[-]"); ok {
			failed = append(failed, reason)
		}
	}
	s.cfg.Log.Warn().Strs("checks", failed).Msg("serving /" + kind + " false")
}

func (s *Server) countCheck(kind, name string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	s.metrics.healthcheck.WithLabelValues(kind, name).Set(value)
	s.metrics.healthchecks.WithLabelValues(kind, name, status).Inc()
}

// healthAnswer is the body of /health. Both fields are strings and always there.
type healthAnswer struct {
	Health string `json:"health"`
	Reason string `json:"reason"`
}

// serveHealth answers /health: alarms first, then the leader, then a read.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	reason := s.unhealthy(r.Context(), query["exclude"], query.Get("serializable") == "true")
	answer := healthAnswer{Health: "true"}
	if reason != "" {
		s.metrics.healthFailures.Inc()
		if s.healthLines.allow(time.Now()) {
			s.cfg.Log.Warn().Str("reason", reason).Msg("serving /health false")
		}
		answer = healthAnswer{Health: "false", Reason: reason}
	} else {
		s.metrics.healthSuccess.Inc()
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason != "" {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusServiceUnavailable)
		body = append(body, '\n')
	}
	_, _ = w.Write(body)
}

// unhealthy gives the reason why the member is not healthy, or nothing.
func (s *Server) unhealthy(ctx context.Context, exclude []string, serializable bool) string {
	for _, a := range s.cfg.Store.State().Alarms {
		if slices.Contains(exclude, a.Alarm.String()) {
			continue
		}
		switch a.Alarm {
		case pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT:
			return "ALARM " + a.Alarm.String()
		default:
			return "ALARM UNKNOWN"
		}
	}
	if s.spaceIsShort() && !slices.Contains(exclude, pb.AlarmType_NOSPACE.String()) {
		return "DISK FULL" // no alarm, because it ends by itself
	}
	if !serializable && s.cfg.Raft.Status().Leader == 0 {
		return "RAFT NO LEADER"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	run := s.checkLinearizable
	if serializable {
		run = s.checkSerializable
	}
	if err := run(ctx); err != nil {
		return fmt.Sprintf("RANGE ERROR:%s", err)
	}
	return ""
}
