package raftactor

import "troupe/proto"

// transfers are the requests to hand leadership over that wait for their end. Raft begins a transfer and gives it up
// after an election timeout without a word; whoever asked sees it in who leads, or not at all.
type transfers struct{ waiting []*transfer }

// onTransfer begins a transfer or refuses it. Handing over to oneself is done already.
func (c *core) onTransfer(m *transfer) {
	to := c.members.Member(m.to)
	switch {
	case !c.leads():
		c.emit(answerTransfer{m.answer, ErrNotLeader})
	case to == nil || to.IsLearner:
		c.emit(answerTransfer{m.answer, ErrBadTransferee})
	case m.to == c.cfg.member:
		c.emit(answerTransfer{m.answer, nil})
	case len(c.transfers.waiting) >= transfersWaitingMax:
		c.emit(answerTransfer{m.answer, ErrTooManyRequests})
	default:
		m.deadline = c.now + c.cfg.requestTicks
		c.transfers.waiting = append(c.transfers.waiting, m)
		c.node.TransferLeader(uint64(m.to))
	}
}

// endTransfers answers the transfers to the member that leads now, and those that have waited for the request timeout.
func (c *core) endTransfers(leader proto.MemberID) {
	kept := c.transfers.waiting[:0]
	for _, m := range c.transfers.waiting {
		switch {
		case m.to == leader:
			c.emit(answerTransfer{m.answer, nil})
		case m.deadline <= c.now:
			c.emit(answerTransfer{m.answer, ErrTransferTimeout})
		default:
			kept = append(kept, m)
		}
	}
	clear(c.transfers.waiting[len(kept):])
	c.transfers.waiting = kept
}

// stopTransfers answers all that wait.
func (c *core) stopTransfers() {
	for _, m := range c.transfers.waiting {
		c.emit(answerTransfer{m.answer, ErrStopped})
	}
	c.transfers.waiting = nil
}
