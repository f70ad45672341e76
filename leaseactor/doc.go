// Package leaseactor lets leases end: it knows when each lease runs out, renews it, and has expired ones revoked.
//
// It does not own the lease table. Which leases exist, and which keys hang on them, is the store's business,
// replicated like everything else; this package owns time. It works on the leading member only, from the moment the
// first entry of the leader's term is applied until raft's state says otherwise (design 4.8), and in between every
// expiry begins anew: nobody knows what an earlier leader promised, so a lease gets what is left of it, or all of it,
// and one election timeout more.
//
//	store --Changed--> lease --revoke, in the term of the decision--> raft
//	gateway --Renew, Remaining--> lease --ConfirmLeader--> raft
//
// The core (core.go) is pure: a hierarchical timer wheel driven by ticks, a queue of what has expired, and the
// bookkeeping of who waits for what. Time comes as a number of ticks, never from a clock.
//
// What a positive TTL promises: the lease was there when the answer left, its keys with it, and it will not expire
// before that many seconds are over, unless another leader takes over who knows better. For that, three things happen
// before such an answer leaves. The lease must not have expired: from the tick of its expiry on, a renewal waits for
// the revocation and answers 0. Leadership is confirmed: this process has ticked within three heartbeats and the disk
// does not stall, else a round of ReadIndex. And the published lease table still has the lease.
//
// Expired leases are revoked as fast as raft takes it without making others wait: a bounded number is in flight, and
// the bound follows from how long raft takes to answer (pace.go). So a million leases that end together do not stop the
// writes of others, and yet do not wait longer than they must. How late it is, is shown (overdue.go).
package leaseactor
