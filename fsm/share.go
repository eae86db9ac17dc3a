package fsm

import "github.com/tidwall/btree"

// share is the part of one entity that this partition holds.
type share struct {
	gen    uint64
	d      *Descriptor // replaced, never changed
	prefix PartitionID
	mask   uint64 // of the bits of a number that count
	quota  uint64 // bytes, 0 if unlimited

	// arrival is the last arrival index given. It grows by one with every acceptance and every
	// activation and never wraps; a number is its low bits (S-96).
	arrival uint64
	size    uint64 // stored bytes (S-225)
	touched Wall   // last send, receive or peek
	active  Lease  // last activity (S-258)
	drops   Drops  // messages that ended without being completed
	// idleReview is when to look whether the share is idle, by the lease clock; 0 if never.
	idleReview Lease

	boxes  [TransferQueue + 1]box
	tokens *tokenIndex

	ids sessionIDs // in their order (S-83)
	// sessionHints finds what ids has, faster, and latest is the session that was used last. Both
	// are for speed alone.
	sessionHints *sessionIndex
	latest       *session
	sessions     *btree.Map[uint32, *session]
	holders      *btree.Map[uint32, holder]
	states       *btree.Map[uint32, sessionState]
	parted       *btree.Map[uint32, parted] // states that lie in parts
	tickets      *dense[uint32]             // the ready list (S-39)
	pauses       *btree.Map[uint32, Lease]  // sessions of which nothing is delivered, until then (lease)
	lastNo       uint32
	lastTicket   uint64
	// aside are the messages of sessions that are deferred or scheduled, and not locked. With those in ready and those
	// that the sessions themselves have as locked they are every message of a session, once.
	aside *btree.BTreeG[placeKey]

	// expiring are the messages of the main queue whose life may end: active, not locked, by its end.
	expiring *btree.BTreeG[expiry]
	// sweeps are sessions whose undelivered messages expire together and are not all gone yet; spared
	// are messages that were in flight then and came back meanwhile (S-79, S-81).
	sweeps *btree.Map[uint32, sweep]
	spared *btree.BTreeG[placeKey]
	// listening says that somebody receives from the entity, as far as the log knows (A22); starved,
	// that a receive was given nothing because there was more to expire than one entry may.
	listening, starved bool
	// restoring says that a Restore puts the content of the share back. Until its end time does nothing here.
	restoring bool
	home      homing // of a share that moved to this partition, or from it

	// seen are the message ids of the duplicate window, by hash and in the order of acceptance.
	seen      *btree.BTreeG[seen]
	seenOrder *btree.Map[uint64, idHash]
	lastSeen  uint64
	// forgotten is the acceptance up to which ids are out of their window for good. A later change of the description
	// may make the window longer, which brings none of them back.
	forgotten Wall

	// rules are those of a subscription; firsts are where copies and moved messages come from, by
	// arrival; heads are what a topic keeps of scheduled messages.
	rules  []compiled
	firsts *btree.Map[uint64, first]
	heads  *btree.Map[uint64, waiting]

	// moves are the messages in transit, by subqueue; origins and decided are what is remembered of
	// those that were moved here. Dead letters up to refusedTo were offered to their destination.
	moves        [TransferQueue + 1]moves
	lastTransfer uint64 // key given last in the transfer queue, which has no numbers
	refusedTo    uint64
	origins      *btree.BTreeG[origin]
	decided      *btree.BTreeG[decided]

	// history holds the three histories; names are the message ids of stored messages and entered the
	// places of their accepted records, by arrival. All are empty while the histories are off.
	history [3]chronicle
	names   *btree.Map[uint64, string]
	entered *btree.Map[uint64, uint64]

	uploads *btree.Map[UploadID, upload] // what is staged of large bodies

	leaseDue *btree.BTreeG[leaseDue]
	wallDue  *btree.BTreeG[wallDue]
	leaseReg Lease // what State.leaseNext holds of this share
	wallReg  Wall  // what State.wallNext holds of it

	woken     [TransferQueue + 1]uint64 // stamp of the request that last woke the plain waiters of a subqueue
	wokenNext uint64                    // the same for those who wait for a session
	concluded uint64                    // index of the entry at whose end its deadlines become known
	tallied   uint64                    // index of the entry whose tallies have one of this share, at tallyAt
	tallyAt   int
}

// box is one subqueue.
// Invariant: a message is scheduled, or deferred, or active; it is locked exactly if locks has it;
// it is in ready exactly if it is active, not locked, not in paused and not in moving.
type box struct {
	messages *dense[message] // by arrival index
	ready    *btree.BTreeG[placeKey]
	locks    *sparse[lock]
	paused   *btree.Map[uint64, Lease]  // active, not in ready until then (lease)
	moving   *btree.Map[uint64, uint64] // in transit: its number there
	extras   *btree.Map[uint64, *extra]

	scheduled, deferred uint64 // messages in that state, locked or not
}

// message is one stored message: 40 bytes without a pointer, for there may be ten million.
type message struct {
	index   uint64 // of the raft entry with the body
	at      Wall   // enqueued; while scheduled the time to activate
	expires Wall   // 0 if the message never expires; a message that waits has its time to live here, see life
	offset  uint32
	length  uint32
	session uint32 // 0 in a queue without sessions and in a DLQ
	bits    uint32 // state, flags and above them the count of finished deliveries
}

// life returns the time to live of a message that is scheduled, or on its way to another entity.
func (m *message) life() Millis { return Millis(m.expires) }

const (
	stateBits  uint32 = 3
	lockedBit  uint32 = 4
	extraBit   uint32 = 8
	countShift        = 4
	// maxAttempts is where the delivery count stops, far beyond any use: 28 bits are left for it.
	maxAttempts = 1<<28 - 1
)

func (m *message) state() MessageState     { return MessageState(m.bits & stateBits) }
func (m *message) setState(s MessageState) { m.bits = m.bits&^stateBits | uint32(s) }
func (m *message) locked() bool            { return m.bits&lockedBit != 0 }
func (m *message) attempts() uint32        { return m.bits >> countShift }
func (m *message) ref() BodyRef {
	return BodyRef{Index: m.index, Offset: m.offset, Length: m.length}
}

// raise counts one finished, unsuccessful delivery.
func (m *message) raise() {
	if m.attempts() < maxAttempts {
		m.bits += 1 << countShift
	}
}

// extra is what only few messages have. Values are never changed, only replaced.
type extra struct {
	reason, description, source string
	scheduledAt                 Wall
	properties                  []Property
	session                     string // in which it died
	inSession                   bool
	to                          EntityID       // in the transfer queue: where it goes
	reserved                    SequenceNumber // in the transfer queue: its number there, 0 for any
	stuck                       bool           // a dead letter that its destination will not have
	system                      []SystemValue  // changed by an action, here or before it was moved here
}

// matters reports whether there is anything in it.
func (x *extra) matters() bool {
	return x.bytes() > 0 || x.scheduledAt != 0 || x.inSession || x.to != 0 || x.stuck
}

func (x *extra) bytes() uint64 {
	n := len(x.reason) + len(x.description) + len(x.source) + len(x.session)
	for _, p := range x.properties {
		n += len(p.Key) + len(p.Value)
	}
	for _, v := range x.system {
		n += 1 + len(v.Value)
	}
	return uint64(n)
}

// lock is the claim on a message. In a session the session's deadline counts instead (S-44).
type lock struct {
	token    LockToken
	deadline Lease // 0 in a session
	taken    Wall
	node     Incarnation
	pump     uint64
}

// placeKey orders messages by session and arrival; the session is 0 without sessions.
type placeKey struct {
	session uint32
	arrival uint64
}

func (a placeKey) less(b placeKey) bool {
	if a.session != b.session {
		return a.session < b.session
	}
	return a.arrival < b.arrival
}

func newShare(d *Descriptor, index int, gen uint64) *share {
	sh := &share{
		gen:          gen,
		prefix:       d.Prefix(index),
		mask:         1<<63 - 1,
		tokens:       newTokenIndex(),
		ids:          newSessionIDs(),
		sessionHints: newSessionIndex(),
		sessions:     new(btree.Map[uint32, *session]),
		holders:      new(btree.Map[uint32, holder]),
		states:       new(btree.Map[uint32, sessionState]),
		parted:       new(btree.Map[uint32, parted]),
		uploads:      newUploads(),
		tickets:      newDense[uint32](gen),
		pauses:       new(btree.Map[uint32, Lease]),
		aside:        newTable(placeKey.less),
		expiring:     newTable(expiry.less),
		sweeps:       new(btree.Map[uint32, sweep]),
		spared:       newTable(placeKey.less),
		seen:         newTable(seen.less),
		seenOrder:    new(btree.Map[uint64, idHash]),
		names:        new(btree.Map[uint64, string]),
		entered:      new(btree.Map[uint64, uint64]),
		firsts:       new(btree.Map[uint64, first]),
		heads:        new(btree.Map[uint64, waiting]),
		origins:      newTable(func(a, b origin) bool { return a.less(b.originKey) }),
		decided:      newTable(decided.less),
		leaseDue:     newTable(leaseDue.less),
		wallDue:      newTable(wallDue.less),
	}
	if d.Partitioned {
		sh.mask = 1<<48 - 1
	}
	for k := range sh.history {
		sh.history[k].records = new(btree.Map[uint64, *past])
	}
	sh.describe(d)
	for i := range sh.boxes {
		sh.boxes[i] = box{
			messages: newDense[message](gen),
			ready:    newTable(placeKey.less),
			locks:    newSparse[lock](gen),
			paused:   new(btree.Map[uint64, Lease]),
			moving:   new(btree.Map[uint64, uint64]),
			extras:   new(btree.Map[uint64, *extra]),
		}
		sh.moves[i].table = new(btree.Map[uint64, moving])
	}
	return sh
}

// describe takes over a version of the description.
func (sh *share) describe(d *Descriptor) {
	if d.Kind == Topic {
		// A message to a topic is gone from it in the same entry, so there is nothing to record.
		d.ProcessedHistory, d.AcceptedHistory = false, false
	}
	sh.d = d
	sh.rules = compile(d, sh.rules)
	sh.quota = d.MaxSizeBytes / uint64(len(d.Partitions))
	if d.MaxSizeBytes > 0 && sh.quota == 0 {
		sh.quota = 1
	}
}

// clone returns a share of a later generation that shares all nodes with sh. Copying a table only
// renames the owner of its nodes; it changes nothing that the reader of an image looks at. The
// indexes of tokens and of sessions, which that reader does not look at, are the same.
func (sh *share) clone(gen uint64) *share {
	c := *sh
	c.gen = gen
	for i := range c.boxes {
		b := &c.boxes[i]
		b.messages = b.messages.Copy(gen)
		b.ready = b.ready.Copy()
		b.locks = b.locks.Copy(gen)
		b.paused = b.paused.Copy()
		b.moving = b.moving.Copy()
		c.moves[i].table = c.moves[i].table.Copy()
		b.extras = b.extras.Copy()
	}
	c.ids = c.ids.copy()
	c.sessions = c.sessions.Copy()
	c.holders = c.holders.Copy()
	c.states = c.states.Copy()
	c.parted = c.parted.Copy()
	c.uploads = c.uploads.Copy()
	c.tickets = c.tickets.Copy(gen)
	c.pauses = c.pauses.Copy()
	c.aside = c.aside.Copy()
	c.expiring = c.expiring.Copy()
	c.sweeps = c.sweeps.Copy()
	c.spared = c.spared.Copy()
	c.seen = c.seen.Copy()
	c.seenOrder = c.seenOrder.Copy()
	c.names = c.names.Copy()
	c.entered = c.entered.Copy()
	c.firsts = c.firsts.Copy()
	c.heads = c.heads.Copy()
	c.origins = c.origins.Copy()
	c.decided = c.decided.Copy()
	for k := range c.history {
		c.history[k].records = c.history[k].records.Copy()
	}
	c.leaseDue = c.leaseDue.Copy()
	c.wallDue = c.wallDue.Copy()
	return &c
}

// sessionful reports whether the subqueue is read under session locks: a DLQ never is (S-78).
func (sh *share) sessionful(sub SubQueue) bool { return sub == Main && sh.d.RequiresSession }

// number is the sequence number of an arrival index (S-92, S-94).
func (sh *share) number(arrival uint64) SequenceNumber {
	return SequenceNumber(sh.prefix)<<48 | SequenceNumber(arrival&sh.mask)
}

// nextArrival gives the next arrival index whose number no stored message carries (S-96).
func (sh *share) nextArrival() uint64 {
	sh.arrival++
	for sh.carried(sh.arrival) {
		sh.arrival++
	}
	return sh.arrival
}

// carried reports whether an older message has the number of arrival index a. Without a wrap none
// can.
func (sh *share) carried(a uint64) bool {
	span := sh.mask + 1
	if a < span {
		return false
	}
	for i := range sh.boxes[:TransferQueue] {
		oldest, _, ok := sh.boxes[i].messages.Min()
		if !ok {
			continue
		}
		for b := a; b >= span && b-span >= oldest; {
			b -= span
			if _, ok := sh.boxes[i].messages.Get(b); ok {
				return true
			}
		}
	}
	return false
}

// from returns the newest arrival index, not above the last given one, that has number n. It returns false if this
// share never gave n.
func (sh *share) from(n SequenceNumber) (uint64, bool) {
	if uint64(n)&^sh.mask != uint64(sh.prefix)<<48 {
		return 0, false
	}
	a := sh.arrival&^sh.mask | uint64(n)&sh.mask
	if a > sh.arrival {
		if a <= sh.mask {
			return 0, false
		}
		a -= sh.mask + 1
	}
	return a, true
}

// find returns the message of the subqueue with number n.
func (sh *share) find(sub SubQueue, n SequenceNumber) (uint64, message, bool) {
	b := &sh.boxes[sub]
	a, ok := sh.from(n)
	oldest, _, any := b.messages.Min()
	if !ok || !any {
		return 0, message{}, false
	}
	for a >= oldest {
		if m, ok := b.messages.Get(a); ok {
			return a, m, true
		}
		if a <= sh.mask {
			break
		}
		a -= sh.mask + 1
	}
	return 0, message{}, false
}

// waiting holds the parts of a scheduled message that a topic keeps. Rules look at them when its time has come,
// because the body is not in the state (S-121).
type waiting struct {
	head       string // the stored form up to the body
	messageID  string
	sessionID  string
	hasSession bool
}
