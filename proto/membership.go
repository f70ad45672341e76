package proto

// Member is one member of the cluster, as the members bucket and the peer protocol have it.
type Member struct {
	ID         MemberID `json:"id"`
	PeerURLs   []string `json:"peerURLs"`
	IsLearner  bool     `json:"isLearner,omitempty"`
	Name       string   `json:"name,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
}

// Membership is who is in the cluster and which version it runs at. Immutable; apply makes a new one for each change.
type Membership struct {
	ClusterID ClusterID
	// Members is sorted by id.
	Members []Member
	// Removed holds the ids that may never come back, sorted.
	Removed []MemberID
	// ClusterVersion is "major.minor.0", empty while undecided.
	ClusterVersion string
	// DowngradeTarget is the version a running downgrade goes to, empty when none runs.
	DowngradeTarget string
	// Lowered is the last lowering of the cluster version that this process has applied.
	Lowered Lowering
}

// Lowering is an entry that lowered the cluster version, and the version before it. The log up to that entry may hold
// what members of the lower version cannot read. The zero value is none.
type Lowering struct {
	At   Index
	From string
}

// Member gives the member with that id, or nil.
func (m *Membership) Member(id MemberID) *Member {
	for i := range m.Members {
		if m.Members[i].ID == id {
			return &m.Members[i]
		}
	}
	return nil
}
