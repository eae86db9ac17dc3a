package model

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// fresh makes a random request. What makes no sense is as welcome as what does.
func (x *run) fresh() fsm.Request {
	q := fsm.Request{Entity: x.entity()}
	if x.r.IntN(6) == 0 {
		q.Sub = fsm.DeadLetter
	}
	proof := fsm.SessionProof{}
	if q.Entity == 2 && q.Sub == fsm.Main || x.r.IntN(20) == 0 {
		proof = x.proof(2)
	}
	if len(x.plan) > 0 && x.r.IntN(2) == 0 {
		c := x.plan[0]()
		x.plan = x.plan[1:]
		return fsm.Request{Entity: 2, Command: c}
	}
	if x.r.IntN(12) == 0 {
		return fsm.Request{Command: x.commit()}
	}
	if x.r.IntN(14) == 0 {
		return x.away()
	}
	if x.r.IntN(20) == 0 {
		c := &fsm.Revoke{Session: x.sessionID()}
		if x.r.IntN(3) > 0 {
			c.Operator = "operator"
		}
		switch x.r.IntN(4) {
		case 0:
			c.Number = x.number(q.Entity)
		case 1, 2:
			c.Node, c.Pump = x.life+fsm.Incarnation(x.r.IntN(2)), uint64(1+x.r.IntN(4))
		case 3:
			c.HasSession = true
			q.Entity, q.Sub = x.mostly(2, q)
		}
		q.Command = c
		return q
	}
	if x.r.IntN(40) == 0 {
		return x.backup(q.Entity)
	}
	if x.r.IntN(50) == 0 {
		return x.rehome(q.Entity)
	}
	if x.r.IntN(16) == 0 {
		return x.moved(q.Entity)
	}
	if x.r.IntN(24) == 0 {
		q.Command = &fsm.Reserve{Count: uint32(x.r.IntN(4) * (1 + x.r.IntN(40)/39*40))}
		return q
	}
	switch n := x.r.IntN(100); {
	case n < 24:
		q.Command = x.enqueue()
		if (q.Entity == 5 || q.Entity == 6) && x.r.IntN(6) > 0 {
			q.Entity = 4
		}
		if q.Entity == 4 {
			mortal(q.Command)
		}
		if x.r.IntN(10) > 0 {
			q.Sub = fsm.Main
		}
	case n < 42:
		q.Command = &fsm.Lock{Max: uint32(x.r.IntN(4)), MaxBytes: uint32(x.r.IntN(2) * 12), Session: proof,
			Delete: x.r.IntN(5) == 0}
	case n < 62:
		q.Command = x.settle(proof)
	case n < 66:
		q.Command = &fsm.Renew{Tokens: []fsm.LockToken{pickOne(x, x.tokens), pickOne(x, x.tokens)}[x.r.IntN(2):]}
	case n < 74:
		q.Entity, q.Sub = x.mostly(2, q)
		q.Command = x.accept()
	case n < 76:
		q.Entity, q.Sub = x.mostly(2, q)
		q.Command = &fsm.RenewSession{Session: x.proof(2)}
	case n < 79:
		q.Entity, q.Sub = x.mostly(2, q)
		q.Command = x.release()
	case n < 82:
		q.Entity, q.Sub = x.mostly(2, q)
		q.Command = &fsm.SetSessionState{Session: x.proof(2), Clear: x.r.IntN(3) == 0,
			State: make([]byte, x.r.IntN(36))}
	case n < 87:
		q.Command = &fsm.Receive{Session: proof, Delete: x.r.IntN(4) == 0,
			Numbers: []fsm.SequenceNumber{x.number(q.Entity), x.number(q.Entity)}[x.r.IntN(2):]}
	case n < 89:
		q.Command = &fsm.Cancel{Numbers: []fsm.SequenceNumber{x.number(q.Entity), x.number(q.Entity)}[x.r.IntN(2):]}
	case n < 90 && x.r.IntN(2) == 0:
		q.Command = &fsm.DeleteMessages{Session: proof, Max: uint32(x.r.IntN(4)),
			Before: []fsm.Wall{0, x.wall - 3000}[x.r.IntN(2)]}
	case n < 90:
		q.Command = &fsm.DropLocks{Tokens: []fsm.LockToken{pickOne(x, x.tokens), pickOne(x, x.tokens)},
			Grace: fsm.Millis(x.r.IntN(3) * 1000)}
	case n < 96:
		q = fsm.Request{Command: x.tick()}
	default:
		q = x.rare(q.Entity)
	}
	return q
}

// accept asks for a session, exclusively or not, or takes one over.
func (x *run) accept() *fsm.AcceptSession {
	c := &fsm.AcceptSession{ID: x.sessionID(), Next: x.r.IntN(2) == 0, Shared: x.r.IntN(3) > 0}
	if x.r.IntN(3) > 0 && len(x.shared) > 0 {
		t := pickOne(x, x.shared)
		c.ID, c.Presented = t.ID, t.Token
		c.Shared, c.Next = x.r.IntN(20) > 0, x.r.IntN(20) == 0
	}
	return c
}

// release gives a session back, or leaves one that was taken over, or asks whether it is held still.
func (x *run) release() fsm.Command {
	if x.r.IntN(6) == 0 {
		return &fsm.WatchSession{Session: x.proof(2), Wait: 1000}
	}
	c := &fsm.ReleaseSession{Session: x.proof(2), Orderly: x.r.IntN(2) == 0, Unsure: x.r.IntN(8) == 0}
	if x.r.IntN(3) == 0 && len(x.former) > 0 {
		c.Session = pickOne(x, x.former)
	}
	for range x.r.IntN(4) {
		c.Unsent = append(c.Unsent, pickOne(x, x.tokens))
	}
	return c
}

// commit makes a transaction of a few operations, most of which may succeed.
func (x *run) commit() *fsm.Commit {
	c := &fsm.Commit{}
	for range x.r.IntN(4) {
		op := fsm.Op{Entity: x.entity()}
		switch n := x.r.IntN(20); {
		case n < 7:
			op.Command = x.numbered(op.Entity, x.enqueue())
			mortal(op.Command)
		case n < 14:
			p := fsm.SessionProof{}
			if op.Entity == 2 {
				p = x.proof(2)
			}
			s := x.settle(p)
			s.Items = s.Items[:1]
			op.Command = s
		case n < 16:
			op.Entity = 2
			op.Command = &fsm.SetSessionState{Session: x.proof(2), State: make([]byte, x.r.IntN(9))}
		case n < 18:
			op.Command = &fsm.Cancel{Numbers: []fsm.SequenceNumber{x.number(op.Entity)}}
		case n < 19 && x.r.IntN(2) == 0:
			op.Entity, op.Command = x.straight(), x.transfer()
		case n < 19:
			op.Command = &fsm.Renew{Tokens: []fsm.LockToken{pickOne(x, x.tokens)}}
		default:
			op.Command = &fsm.Lock{Max: 1}
		}
		c.Ops = append(c.Ops, op)
	}
	return c
}

// straight is a queue.
func (x *run) straight() fsm.EntityID { return []fsm.EntityID{1, 2, 3, 7}[x.r.IntN(4)] }

func (x *run) transfer() *fsm.Transfer {
	c := &fsm.Transfer{To: fsm.EntityID(min(1, x.r.IntN(12)) * (90 + x.r.IntN(3)))}
	for range x.r.IntN(4) {
		m := fsm.Message{Body: make([]byte, 1+x.r.IntN(8)), TTL: fsm.Millis(max(-1, x.r.IntN(20)*700-700))}
		if x.r.IntN(5) == 0 {
			m.ScheduledAt = x.wall + fsm.Wall(x.r.IntN(6000))
			m.Reserved = fsm.SequenceNumber(x.r.IntN(3))
		}
		c.Messages = append(c.Messages, m)
	}
	return c
}

// away makes what sends messages elsewhere: clients, operators and the forwarder.
func (x *run) away() fsm.Request {
	q := fsm.Request{Entity: x.straight()}
	if x.r.IntN(3) == 0 {
		if x.r.IntN(10) == 0 {
			q.Sub = fsm.DeadLetter
		}
		q.Command = x.transfer()
		return q
	}
	if x.r.IntN(3) > 0 {
		q.Entity = 7
	}
	q.Sub = fsm.SubQueue(x.r.IntN(3))
	if x.r.IntN(20) == 0 {
		q.Sub = fsm.TransferDeadLetter
	}
	c := &fsm.Forward{Epoch: x.epoch, To: []fsm.EntityID{0, 95, q.Entity, 4}[x.r.IntN(4)], Max: uint32(x.r.IntN(4)),
		MaxBytes: uint32(x.r.IntN(2) * 12)}
	if x.r.IntN(20) == 0 {
		c.Epoch--
	}
	for range x.r.IntN(4) {
		number := uint64(1 + x.r.IntN(6))
		if x.r.IntN(2) == 0 {
			number = pickOne(x, x.moves)
		}
		c.Done = append(c.Done, fsm.Moved{Number: number, Detail: "why",
			Refusal: []fsm.Refusal{fsm.None, fsm.None, fsm.EntityDisabled, fsm.QuotaExceeded, fsm.SessionRequired,
				fsm.Busy, fsm.Stale}[x.r.IntN(7)]})
	}
	q.Command = c
	return q
}

// moved makes what a forwarder brings, some of it for the second time.
func (x *run) moved(id fsm.EntityID) fsm.Request {
	q := fsm.Request{Entity: id, Sub: fsm.SubQueue(max(0, x.r.IntN(20)-18))}
	c := x.enqueue()
	if id == 4 {
		mortal(c)
	}
	c.Origin = &fsm.Origin{Entity: fsm.EntityID(80 + x.r.IntN(2)), Partition: fsm.PartitionID(1 + x.r.IntN(2)),
		Sub: []fsm.SubQueue{fsm.Main, fsm.DeadLetter, fsm.TransferQueue}[x.r.IntN(3)], Below: uint64(x.r.IntN(6))}
	x.numbered(id, c)
	number := uint64(x.r.IntN(6))
	for i := range c.Messages {
		number += uint64(min(1, x.r.IntN(30))) * uint64(1+x.r.IntN(3))
		c.Origin.Numbers = append(c.Origin.Numbers, number)
		if x.r.IntN(2) == 0 {
			c.Messages[i].Carried = x.carried()
		}
	}
	if x.r.IntN(30) == 0 {
		c.Origin.Numbers = append(c.Origin.Numbers, number+1)
	}
	q.Command = c
	return q
}

// carried is what a moved message brings along.
func (x *run) carried() *fsm.Carried {
	c := &fsm.Carried{EnqueuedSeq: x.number(1), Hops: uint8(1 + x.r.IntN(5))}
	if x.r.IntN(2) == 0 {
		c.Reason, c.Description, c.Source = "why", "because", "elsewhere"
	}
	if x.r.IntN(2) == 0 {
		c.Properties = []fsm.Property{{Key: x.sessionID(), Value: []byte{byte(x.r.IntN(9))}}}
	}
	return c
}

// numbered gives the messages of a batch numbers that an earlier Reserve gave, each of them once: what the
// past knows of a number that a message had before is not the business of a Commit.
func (x *run) numbered(id fsm.EntityID, c *fsm.Enqueue) *fsm.Enqueue {
	for i := range c.Messages {
		switch list := x.reserved[id]; {
		case x.r.IntN(40) == 0: // never issued
			c.Messages[i].Reserved = x.never
		case len(list) > 0 && x.r.IntN(2) == 0:
			c.Messages[i].Reserved, x.reserved[id] = list[0], list[1:]
		}
	}
	return c
}

// mortal takes the times to live off: what expires in the same Tick as a topic's copies arrive does so
// in the order of the deadlines, which this model does not follow across entities.
func mortal(c fsm.Command) {
	for i := range c.(*fsm.Enqueue).Messages {
		c.(*fsm.Enqueue).Messages[i].TTL = 0
	}
}

// mostly turns a random target into the main queue of an entity, mostly.
func (x *run) mostly(id fsm.EntityID, q fsm.Request) (fsm.EntityID, fsm.SubQueue) {
	if x.r.IntN(12) == 0 {
		return q.Entity, q.Sub
	}
	return id, fsm.Main
}

func (x *run) number(id fsm.EntityID) fsm.SequenceNumber {
	n := fsm.SequenceNumber(1 + x.r.IntN(12))
	if x.r.IntN(3) > 0 {
		n = pickOne(x, x.numbers)
	}
	if id == 3 {
		n |= 1 << 48
	}
	return n
}

func (x *run) enqueue() *fsm.Enqueue {
	c := &fsm.Enqueue{}
	for range x.r.IntN(4) {
		m := fsm.Message{Body: make([]byte, 1+x.r.IntN(8)), HasSession: x.r.IntN(20) > 0,
			SessionID: x.sessionID(), MessageID: []string{"", "", "", "x", "y", "z"}[x.r.IntN(6)]}
		if !m.HasSession {
			m.PartitionKey = x.sessionID()
		}
		if x.r.IntN(5) == 0 {
			m.ScheduledAt = x.wall + fsm.Wall(x.r.IntN(6000)) - 1000
		}
		if x.r.IntN(4) == 0 {
			m.TTL = fsm.Millis(1 + x.r.IntN(9_000)*(1+x.r.IntN(10)))
		}
		c.Messages = append(c.Messages, m)
	}
	return c
}

// tick makes a Tick; not all who are named have a queue.
func (x *run) tick() *fsm.Tick {
	c := &fsm.Tick{}
	for id := range fsm.EntityID(4) {
		if x.r.IntN(3) == 0 {
			c.Listeners = append(c.Listeners, 1+id)
		}
	}
	return c
}

func (x *run) settle(p fsm.SessionProof) *fsm.Settle {
	c := &fsm.Settle{Session: p}
	for range 1 + x.r.IntN(3) {
		it := fsm.SettleItem{Token: pickOne(x, x.tokens), Verdict: fsm.Verdict(1 + x.r.IntN(5))}
		if x.r.IntN(3) == 0 {
			it.Properties = []fsm.Property{{Key: x.sessionID(), Value: []byte{byte(x.r.IntN(9))}}}
		}
		if it.Verdict == fsm.Kill && x.r.IntN(2) == 0 {
			it.Reason, it.Description = "reason", "text"
		}
		if it.Verdict == fsm.Abandon && x.r.IntN(4) == 0 {
			it.Delay = fsm.Millis(x.r.IntN(5000))
		}
		if x.r.IntN(50) == 0 {
			it.Delay = -1
		}
		if x.r.IntN(20) == 0 {
			it.Seq = x.number(1)
		}
		c.Items = append(c.Items, it)
	}
	return c
}

// rare makes what an administrator or a failing cluster does.
func (x *run) rare(id fsm.EntityID) fsm.Request {
	switch n := x.r.IntN(20); {
	case n < 9:
		return fsm.Request{Command: x.put(id)}
	case n >= 16:
		return x.redrive(id)
	case n < 10:
		return fsm.Request{Entity: id, Command: &fsm.DropEntity{}}
	case n < 11:
		lost := x.life
		x.life++
		return fsm.Request{Command: &fsm.NodeLost{Node: lost}}
	case n < 13:
		return fsm.Request{Command: &fsm.DropPumps{Node: x.life, Pumps: []uint64{uint64(x.r.IntN(5)), 2}}}
	case n < 14 && x.r.IntN(2) == 0:
		return fsm.Request{Entity: id, Command: &fsm.Touch{}}
	case n < 14:
		return fsm.Request{Entity: id, Command: &fsm.Change{}}
	}
	return fsm.Request{Command: &fsm.Barrier{}}
}

func (x *run) redrive(id fsm.EntityID) fsm.Request {
	c := &fsm.Redrive{Max: uint32(x.r.IntN(4)), HasReason: x.r.IntN(3) == 0, HasSession: x.r.IntN(3) == 0,
		Reason: []string{"reason", "TTLExpiredException"}[x.r.IntN(2)], Session: x.sessionID()}
	if x.r.IntN(3) == 0 {
		c.From, c.Until = x.wall-9000, x.wall-1000
	}
	if x.r.IntN(3) == 0 {
		c.After = uint64(x.number(1))
	}
	sub := []fsm.SubQueue{fsm.DeadLetter, fsm.DeadLetter, fsm.DeadLetter, fsm.Main}[x.r.IntN(4)]
	if x.r.IntN(3) == 0 && id != 4 {
		c.To = 96
	}
	c.Discard = c.To == 0 && x.r.IntN(3) == 0
	if x.r.IntN(4) == 0 {
		c = &fsm.Redrive{To: c.To, Discard: c.Discard}
		for range 1 + x.r.IntN(3) {
			c.Numbers = append(c.Numbers, x.number(id))
		}
	}
	if id == 1 {
		sub = fsm.DeadLetter // what is at rest in 1 wakes by chance, and nobody would tell
	}
	return fsm.Request{Entity: id, Sub: sub, Command: c}
}

// put describes the entities that the driver uses: 1 is plain, 2 has sessions, 3 is a share of a
// partitioned queue without dead-letter queue, 4 is a topic with the subscriptions 5 and, with
// sessions, 6. What is in 7 and its dead letters go on to other entities at times.
func (x *run) put(id fsm.EntityID) *fsm.PutEntity {
	x.version++
	d := fsm.Descriptor{
		ID: id, Version: x.version, Kind: fsm.Queue, Name: "q", Partitions: []fsm.PartitionID{1},
		LockDuration: fsm.Millis(3000 + 1000*x.r.IntN(4)), MaxDelivery: uint32(1 + x.r.IntN(4)),
		MaxMessageBytes: 30, MaxSizeBytes: uint64(60 + x.r.IntN(200)), DefaultTTL: fsm.Unlimited,
	}
	if x.r.IntN(3) == 0 {
		d.DefaultTTL = 30_000
	}
	if x.r.IntN(3) == 0 {
		d.RetryBackoff = fsm.RetryBackoff{Min: 500, Max: 3000, Multiplier: 200}
	}
	d.ProcessedHistory, d.AcceptedHistory = x.r.IntN(2) == 0, x.r.IntN(2) == 0
	d.ProcessedHistoryBody = x.r.IntN(2) == 0
	d.HistoryCount, d.HistoryAge = uint32(1+x.r.IntN(3)), fsm.Millis(1+x.r.IntN(9000))
	d.AutoDeleteOnIdle = []fsm.Millis{fsm.Unlimited, 5000, 300_000}[x.r.IntN(3)]
	d.DuplicateWindow = fsm.Millis(1000 + x.r.IntN(9000))
	d.DeadLetterOnExpiration = x.r.IntN(2) == 0
	if x.r.IntN(10) == 0 {
		d.Version -= 2 * uint64(x.r.IntN(2)) * min(1, d.Version/3)
	}
	if x.r.IntN(4) == 0 {
		d.Status = fsm.Status(x.r.IntN(4))
	}
	if id >= 4 && id <= 6 {
		d.DefaultTTL, d.Kind = fsm.Unlimited, fsm.Topic
		d.MaxSizeBytes *= 3
	}
	switch id {
	case 4:
		d.DetectDuplicates = true
	case 5, 6:
		d.Kind, d.Parent, d.RequiresSession = fsm.Subscription, 4, id == 6
		d.Rules = []fsm.Rule{{Name: "r", Source: rule.Source{Kind: rule.FalseFilter}}, {Name: "s", Source: rule.Default()}}
		if x.r.IntN(4) == 0 {
			d.Rules = d.Rules[:1]
		}
	case 7:
		if x.r.IntN(3) > 0 {
			d.ForwardTo = "elsewhere"
		}
		if x.r.IntN(2) == 0 {
			d.ForwardDeadLettersTo = "elsewhere"
		}
	case 1:
		d.RetryBackoff.Jitter = []uint32{0, 30, 100}[x.r.IntN(3)]
	case 2:
		d.RequiresSession, d.DetectDuplicates = true, true
	case 3:
		d.Partitioned, d.NoDeadLetter, d.DetectDuplicates = true, true, true
		d.Partitions = []fsm.PartitionID{4, 1}
	}
	return &fsm.PutEntity{Descriptor: d}
}
