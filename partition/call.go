package partition

import (
	"container/list"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// call is one request of one caller at the leader, from its arrival to its answer.
type call struct {
	req   fsm.Request
	query bool // no request of its own: it only needs an entry proposed after its arrival (A16)
	size  int  // bytes it is expected to take in an entry
	// reserved says that it may use the quota kept for settlements and renewals (A21).
	reserved bool

	// A request that may be parked waits for key until until (A5, A18).
	parkable bool
	key      fsm.WaitKey
	max      uint32 // messages it takes at most
	until    time.Time

	// The rest is guarded by proposer.mu.
	state  callState
	over   bool   // its wait is over: what comes back empty is answered, not parked again
	ticket uint64 // order of arrival among the parked
	slot   *list.Element
	pulled bool // it rides in its entry from a parking slot
	placed bool // it has one of the places that its entity has for receives

	answer chan answer // one answer, never blocks
}

// callState is where a call is. Invariant: a call is in pending, in parked, in the entry under way,
// or answered; never in two.
type callState uint8

const (
	callPending callState = iota
	callParked
	callRiding
	callDone
)

// answer ends a call.
type answer struct {
	outcome fsm.Outcome
	err     error
}

func newCall(req fsm.Request, now time.Time) *call {
	c := &call{req: req, answer: make(chan answer, 1), size: weigh(req.Command)}
	switch cmd := req.Command.(type) {
	case *fsm.Lock:
		c.key = lockKey(req.Entity, req.Sub, cmd)
		c.max = max(cmd.Max, 1)
		c.park(now, cmd.Wait)
	case *fsm.AcceptSession:
		if cmd.Next {
			c.key = fsm.WaitKey{Entity: req.Entity, Sub: req.Sub, Kind: fsm.WaitSession}
			c.max = 1
			c.park(now, cmd.Wait)
		}
	case *fsm.WatchSession:
		c.key = fsm.WaitKey{Entity: req.Entity, Sub: req.Sub, Kind: fsm.WaitLost,
			HasSession: true, Session: cmd.Session.ID}
		c.max = 1
		c.park(now, cmd.Wait)
	case *fsm.Settle, *fsm.Renew, *fsm.RenewSession, *fsm.ReleaseSession, *fsm.DropLocks,
		*fsm.DropPumps, *fsm.NodeLost, *fsm.PutEntity, *fsm.DropEntity:
		c.reserved = true
	}
	return c
}

func lockKey(entity fsm.EntityID, sub fsm.SubQueue, l *fsm.Lock) fsm.WaitKey {
	k := fsm.WaitKey{Entity: entity, Sub: sub, Kind: fsm.WaitMessage}
	if !l.Session.Token.IsZero() {
		k.HasSession, k.Session = true, l.Session.ID
	}
	return k
}

func (c *call) park(now time.Time, wait fsm.Millis) {
	if wait > 0 {
		c.parkable = true
		c.until = now.Add(time.Duration(min(wait, maxWait)) * time.Millisecond)
	}
}

// maxWait bounds the wait of a parked request, so that it cannot overflow a time.
const maxWait fsm.Millis = 24 * 60 * 60 * 1000

// empty reports whether o took nothing, so that the request may go on waiting.
func (c *call) empty(o *fsm.Outcome) bool {
	if c.key.Kind == fsm.WaitSession {
		return o.Refusal == fsm.NoSession
	}
	return o.Refusal == fsm.None && len(o.Locked) == 0
}

// nothing is the outcome of a wait that is over.
func (c *call) nothing() fsm.Outcome {
	if c.key.Kind == fsm.WaitSession {
		return fsm.Outcome{Refusal: fsm.NoSession}
	}
	return fsm.Outcome{}
}

// takes reports whether the command hands something to the caller that the caller must give back
// when it no longer wants it.
func (c *call) takes() bool {
	switch c.req.Command.(type) {
	case *fsm.Lock, *fsm.AcceptSession, *fsm.Receive:
		return true
	}
	return false
}

// finish answers the call; further answers are dropped. The caller holds proposer.mu or owns c.
func (c *call) finish(o fsm.Outcome, err error) {
	if c.state == callDone {
		return
	}
	c.state = callDone
	c.answer <- answer{o, err}
}

const (
	requestBytes = 64 // what the fields of a request take beside the variable ones
	itemBytes    = 48 // a settle item, a token, a message without its texts
)

// weigh estimates the bytes of a command in an entry. It need not be exact: it closes entries and
// bounds memory.
func weigh(c fsm.Command) int {
	n := requestBytes
	switch c := c.(type) {
	case *fsm.Enqueue, *fsm.Transfer:
		fsm.EachMessage(c, func(m *fsm.Message) {
			n += itemBytes + len(m.SessionID) + len(m.MessageID) + len(m.Body)
		})
	case *fsm.Commit:
		for i := range c.Ops {
			n += weigh(c.Ops[i].Command)
		}
	case *fsm.BodyPart:
		n += len(c.Body)
	case *fsm.Forward:
		n += itemBytes * len(c.Done)
	case *fsm.Lock:
		n += len(c.Session.ID)
	case *fsm.Settle:
		n += len(c.Session.ID)
		for i := range c.Items {
			it := &c.Items[i]
			n += itemBytes + len(it.Reason) + len(it.Description)
			for _, p := range it.Properties {
				n += len(p.Key) + len(p.Value)
			}
		}
	case *fsm.Renew:
		n += itemBytes * len(c.Tokens)
	case *fsm.DropLocks:
		n += itemBytes * len(c.Tokens)
	case *fsm.DropPumps:
		n += 8 * len(c.Pumps)
	case *fsm.SetSessionState:
		n += len(c.Session.ID) + len(c.State)
	case *fsm.AcceptSession:
		n += len(c.ID)
	case *fsm.WatchSession:
		n += len(c.Session.ID)
	case *fsm.ReleaseSession:
		n += len(c.Session.ID) + itemBytes*len(c.Unsent)
	case *fsm.Receive:
		n += len(c.Session.ID) + 8*len(c.Numbers)
	case *fsm.Cancel:
		n += 8 * len(c.Numbers)
	case *fsm.PutEntity:
		d := &c.Descriptor
		n += 512 + len(d.Name) + len(d.UserMetadata) + 2*len(d.Partitions) + 512*len(d.AuthRules)
	case *fsm.Change:
		n += len(c.Data)
	}
	return n
}
