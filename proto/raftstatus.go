package proto

// RaftStatus is what raft publishes about itself after each turn. Immutable.
type RaftStatus struct {
	Member  MemberID
	Leader  MemberID // 0: none
	Term    Term
	Commit  Index
	Applied Index
	// Learner says that this member has no vote.
	Learner bool
	// LeaderTerm is the term in which this member leads and has applied the first entry of; 0 otherwise. Only then may it
	// act as primary for leases.
	LeaderTerm Term
	// DiskStalledTicks is the age of the oldest unanswered append, in ticks; 0 when none is old.
	DiskStalledTicks int
	// LogFull says that the disk of the log is full and requests of clients are refused.
	LogFull bool
	// Ready says that the first entry of a term led or followed since start has been applied: reads may be served.
	Ready bool
}

// IsLeader reports whether this member leads.
func (s *RaftStatus) IsLeader() bool { return s.Leader == s.Member && s.Member != 0 }
