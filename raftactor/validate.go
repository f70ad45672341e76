package raftactor

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ValidateRequest refuses what must not enter the log: enum values that no version defines, and operations without
// content. Such an entry is decoded by some readers and not by others (etcd's scan of its log for versions panics on an
// unknown enum value), and it stops every member at every start. The official Unmarshal of the client's bytes, which
// has happened before, has settled the rest (UTF-8, lengths, nesting).
//
// The request must have content; that it has exactly one is not checked, as apply takes the first in etcd's order.
// The error wraps ErrInvalidRequest and names the field.
func ValidateRequest(r *etcdserverpb.InternalRaftRequest) error {
	switch {
	case r.GetRange() != nil:
		return validateRange(r.GetRange())
	case r.GetTxn() != nil:
		return validateTxn(r.GetTxn())
	case r.GetAlarm() != nil:
		return validateAlarm(r.GetAlarm())
	case r.GetAuthRoleGrantPermission() != nil:
		return validatePermission(r.GetAuthRoleGrantPermission().GetPerm())
	case hasContent(r):
		return nil
	}
	return fmt.Errorf("%w: it has no content", ErrInvalidRequest)
}

// hasContent reports whether one of the fields is set that need no check of their own.
func hasContent(r *etcdserverpb.InternalRaftRequest) bool {
	return r.Put != nil || r.DeleteRange != nil || r.Compaction != nil ||
		r.LeaseGrant != nil || r.LeaseRevoke != nil || r.LeaseCheckpoint != nil ||
		r.ClusterVersionSet != nil || r.ClusterMemberAttrSet != nil || r.DowngradeInfoSet != nil ||
		r.DowngradeVersionTest != nil || hasAuthContent(r)
}

func hasAuthContent(r *etcdserverpb.InternalRaftRequest) bool {
	return r.AuthEnable != nil || r.AuthDisable != nil || r.AuthStatus != nil || r.Authenticate != nil ||
		r.AuthUserAdd != nil || r.AuthUserDelete != nil || r.AuthUserGet != nil || r.AuthUserChangePassword != nil ||
		r.AuthUserGrantRole != nil || r.AuthUserRevokeRole != nil || r.AuthUserList != nil ||
		r.AuthRoleList != nil || r.AuthRoleAdd != nil || r.AuthRoleDelete != nil || r.AuthRoleGet != nil ||
		r.AuthRoleGrantPermission != nil || r.AuthRoleRevokePermission != nil
}

func validateRange(r *etcdserverpb.RangeRequest) error {
	if _, ok := etcdserverpb.RangeRequest_SortOrder_name[int32(r.SortOrder)]; !ok {
		return fmt.Errorf("%w: sort order %d is unknown", ErrInvalidRequest, r.SortOrder)
	}
	if _, ok := etcdserverpb.RangeRequest_SortTarget_name[int32(r.SortTarget)]; !ok {
		return fmt.Errorf("%w: sort target %d is unknown", ErrInvalidRequest, r.SortTarget)
	}
	return nil
}

// validateTxn goes through both branches and all nested transactions. Its depth is bounded: the wire decoder has
// refused deeper nesting.
func validateTxn(t *etcdserverpb.TxnRequest) error {
	for _, c := range t.Compare {
		if err := validateCompare(c); err != nil {
			return err
		}
	}
	for _, branch := range [2][]*etcdserverpb.RequestOp{t.Success, t.Failure} {
		for _, op := range branch {
			if err := validateOp(op); err != nil {
				return err
			}
		}
	}
	return nil
}

// validateCompare leaves an absent target_union alone: it is decodable and means the zero value, as in etcd.
func validateCompare(c *etcdserverpb.Compare) error {
	if c == nil {
		return fmt.Errorf("%w: a comparison is missing", ErrInvalidRequest)
	}
	if _, ok := etcdserverpb.Compare_CompareResult_name[int32(c.Result)]; !ok {
		return fmt.Errorf("%w: comparison result %d is unknown", ErrInvalidRequest, c.Result)
	}
	if _, ok := etcdserverpb.Compare_CompareTarget_name[int32(c.Target)]; !ok {
		return fmt.Errorf("%w: comparison target %d is unknown", ErrInvalidRequest, c.Target)
	}
	return nil
}

func validateOp(op *etcdserverpb.RequestOp) error {
	switch {
	case op.GetRequestRange() != nil:
		return validateRange(op.GetRequestRange())
	case op.GetRequestPut() != nil, op.GetRequestDeleteRange() != nil:
		return nil
	case op.GetRequestTxn() != nil:
		return validateTxn(op.GetRequestTxn())
	}
	return fmt.Errorf("%w: an operation of the transaction is empty", ErrInvalidRequest)
}

func validateAlarm(a *etcdserverpb.AlarmRequest) error {
	if _, ok := etcdserverpb.AlarmRequest_AlarmAction_name[int32(a.Action)]; !ok {
		return fmt.Errorf("%w: alarm action %d is unknown", ErrInvalidRequest, a.Action)
	}
	if _, ok := etcdserverpb.AlarmType_name[int32(a.Alarm)]; !ok {
		return fmt.Errorf("%w: alarm type %d is unknown", ErrInvalidRequest, a.Alarm)
	}
	return nil
}

func validatePermission(p *authpb.Permission) error {
	if p == nil {
		return nil // etcd answers "permission not given" itself
	}
	if _, ok := authpb.Permission_Type_name[int32(p.PermType)]; !ok {
		return fmt.Errorf("%w: permission type %d is unknown", ErrInvalidRequest, p.PermType)
	}
	return nil
}
