package differential

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
)

// downgrade draws a call that changes nothing: what an accepted ENABLE leads to comes when a server looks at its
// versions, which is for DownAndUp.
func (d dice) downgrade() *pb.DowngradeRequest {
	refused := []string{"", "3", "3.5", "3.7", "3.7.0", "4.6", "v3.6", "3.6.x", "nonsense"}
	switch d.below(4) {
	case 0:
		return &pb.DowngradeRequest{Action: pb.DowngradeRequest_ENABLE, Version: pick(d, refused...)}
	case 1:
		return &pb.DowngradeRequest{Action: pick(d, pb.DowngradeRequest_CANCEL, 3, -1), Version: pick(d, "", "3.6")}
	}
	return &pb.DowngradeRequest{Version: pick(d, append(refused, "3.6", "3.6.9", "03.6.0-a+b", "3.6.0-")...)}
}

// downAndUp downgrades both servers and cancels that, each time until nothing is under way any more.
func (w *world) downAndUp(s step) *difference {
	if w.membersAdded() > 0 { // a member whose version is not known keeps the cluster's where it is
		w.use("no downgrade while a member does not run")
		return nil
	}
	validate := call("Downgrade", &pb.DowngradeRequest{Version: "3.6"})
	for _, turn := range []struct {
		request *pb.DowngradeRequest
		reaches string
	}{
		{&pb.DowngradeRequest{Action: pb.DowngradeRequest_ENABLE, Version: "3.6"}, "3.6.0"},
		{&pb.DowngradeRequest{Action: pb.DowngradeRequest_CANCEL}, "3.7.0"},
	} {
		if d := w.unary(call("Downgrade", turn.request)); d != nil {
			return d
		}
		reached := both(w, func(side *side) string { return side.reaches(turn.reaches) })
		if reached[etcdSide] != reached[troupeSide] || reached[etcdSide] != turn.reaches {
			return &difference{s.String(), reached[etcdSide], reached[troupeSide]}
		}
		for _, look := range []step{call("Status", &pb.StatusRequest{}), validate} {
			if d := w.unary(look); d != nil {
				return d
			}
		}
	}
	return nil
}

// reaches waits for a storage version, which follows the cluster version, and gives the one that is there in the end.
func (s *side) reaches(version string) string {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	last := ""
	for ctx.Err() == nil {
		r, err := pb.NewMaintenanceClient(s.conn).Status(ctx, &pb.StatusRequest{})
		switch {
		case err == nil && r.StorageVersion == version:
			return version
		case err == nil:
			last = r.StorageVersion
		default:
			last = fmt.Sprint("status: ", status.Convert(err).Message())
		}
		<-time.After(20 * time.Millisecond)
	}
	return last
}
