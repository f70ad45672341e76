package leaseactor

// pace says how many revocations may be with raft at a time. There is no rate: what sets the speed is how fast raft
// answers.
//
// A revocation passes through raft, the log and the store like the writes of clients, so the time it takes tells how
// long a write takes that comes at the same moment. While little is in flight that time is what raft and the disk need
// anyway, the base; what a wider window adds to it are revocations that stand in front of each other, and of the
// writes. So the window is widened as long as answers come within the base and a bound, and narrowed as soon as they do
// not. A disk that takes 20 ms for a sync gets hundreds at a time, because they share it; a slow processor gets few,
// because each has to wait for the others.
//
// It works in rounds: the answers to a window full of revocations, all proposed since the window last changed. The base
// is measured in a round of few, when revocations begin and from time to time.
//
// A revocation deletes the keys of its lease, all in one revision, so leases of many keys are also bounded by how many
// keys are being deleted together.
type pace struct {
	window   int
	inFlight int
	keys     int32 // that those in flight delete
	now      moment
	base     moment // 0: not measured
	probing  bool   // measuring the base
	measured moment // when that was last begun
	changed  moment // when the limit last went down; what was proposed before does not count
	answers  int    // in this round
	took     moment // by all of them
	resume   moment // nothing is proposed before, because raft has refused
}

func newPace(now moment) pace {
	return pace{window: revokesInFlightMin, now: now, measured: now - revokeBaseInterval}
}

// limit is how many may be in flight now.
func (p *pace) limit() int {
	if p.probing {
		return revokesInFlightMin
	}
	return p.window
}

// open reports whether another revocation may be proposed, if it is small.
func (p *pace) open() bool { return p.inFlight < p.limit() && p.now >= p.resume }

// allows reports whether one that deletes so many keys may be proposed. One of very many goes alone.
func (p *pace) allows(keys int32) bool {
	return p.open() && (p.inFlight == 0 || p.keys+keys <= revokedKeysMax)
}

// begin counts a revocation that is proposed.
func (p *pace) begin(keys int32) {
	if p.now-p.measured >= revokeBaseInterval && !p.probing {
		p.probing, p.measured = true, p.now
		p.restart()
	}
	p.inFlight++
	p.keys += keys
}

// end counts down what is not in flight any more.
func (p *pace) end(keys int32) {
	p.inFlight--
	p.keys -= keys
}

// restart begins a round, of what is proposed from now on.
func (p *pace) restart() { p.changed, p.answers, p.took = p.now, 0, 0 }

// succeeded takes the answer to what was proposed then. What is in flight is counted down by end.
func (p *pace) succeeded(proposed moment) {
	if proposed < p.changed {
		return
	}
	p.answers++
	p.took += p.now - proposed
	if p.answers < p.limit() {
		return
	}
	mean := p.took / moment(p.answers)
	p.answers, p.took = 0, 0
	switch {
	case p.probing:
		p.base, p.probing = mean, false
		p.restart()
	case mean > p.base+revokeDelayMax:
		p.window = max(p.window*3/4, revokesInFlightMin)
		p.restart()
	case mean > p.base+revokeDelayMax/2:
		p.window = min(p.window+p.window/4+1, revokesInFlightMax)
	default: // far from the bound; a slow disk must not take many rounds to find that out
		p.base = min(p.base, mean)
		p.window = min(2*p.window, revokesInFlightMax)
	}
}

// refused takes a refusal, or an answer that is no success. It halves the window, once for all that was in flight,
// because the answers of one bad moment come together, and lets raft alone for a moment: else all that is overdue would
// be refused one after the other.
func (p *pace) refused(proposed moment) {
	p.resume = max(p.resume, p.now+revokePause)
	if proposed < p.changed {
		return
	}
	p.window = max(p.window/2, revokesInFlightMin)
	p.probing = false
	p.restart()
	p.changed++ // what was proposed at this very moment does not count either
}
