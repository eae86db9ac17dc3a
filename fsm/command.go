package fsm

// Entry is the content of one Raft log entry: the commands of many requests, packed (A4).
type Entry struct {
	// Wall and Lease are the leader's stamps. State clamps both, so a slow or new leader never
	// moves time backwards (S-285 to S-287).
	Wall  Wall
	Lease Lease
	// Epoch is the log index of the BecomeLeader entry of the proposing leadership; entries of an
	// older epoch are refused whole, as if they had never been proposed (A15, fencing). A
	// BecomeLeader entry itself carries 0.
	Epoch uint64
	// Seed is the chance of this entry: the n-th token drawn while applying it comes from it.
	Seed     [32]byte
	Requests []Request
}

// Request is one command of one caller.
type Request struct {
	ID      RequestID
	Entity  EntityID // 0 for commands of the partition itself
	Sub     SubQueue
	Command Command
}

// Command is one change of a partition's state. The set is closed. By purpose:
//
//   - Messages in: [Enqueue], [Reserve], [Cancel], [BodyPart] for a large body
//   - Messages out: [Lock], [Settle], [Renew], [Receive] of deferred ones, [DropLocks] of a lost connection
//   - Sessions: [AcceptSession], [WatchSession], [RenewSession], [ReleaseSession], [SetSessionState]
//   - Several at once: [Commit]
//   - From one entity to another: [Transfer], [Forward]
//   - Many messages: [DeleteMessages], [Redrive]
//   - An operator: [Revoke]
//   - Backups: [HoldForwards], [Restore]
//   - A share that moves to another partition: [Rehome]
//   - Entities: [PutEntity], [DropEntity], [Touch]
//   - Leadership, time and nodes: [BecomeLeader], [Tick], [Barrier], [NodeLost], [DropPumps]
//   - The catalog: [Change], whose content package catalog knows
type Command interface {
	// Traits say what the command is.
	Traits() Traits
	// Weight estimates the bytes of the command in an entry. It need not be exact: it closes entries and bounds memory.
	Weight() int
}

// Enqueue stores messages, all or none, with consecutive numbers in this order (S-99, S-138). Sent to
// a topic it makes the copies of all subscriptions (S-214). With an Origin the messages are judged one
// by one and each is taken once, however often it comes: see Origin.
type Enqueue struct {
	Messages []Message
	Origin   *Origin // nil for what a client sends
	// Late has messages that come while the command waits for its entry; nil once no more may come. It is not encoded:
	// whoever encodes the command has called Seal.
	Late Late
}

// Late collects what is sent behind an Enqueue by the same sender, while the command waits for its entry.
type Late interface {
	// Len is how many messages there are.
	Len() int
	// OnMore has f called whenever there are more. It is called before Take.
	OnMore(f func())
	// Take returns the first messages that weigh at most room bytes. Nothing more can be collected or taken afterwards.
	Take(room int) []Message
}

// Len is how many messages the command would store now.
func (c *Enqueue) Len() int {
	if c.Late == nil {
		return len(c.Messages)
	}
	return len(c.Messages) + c.Late.Len()
}

// Seal takes in late messages of at most room bytes. The command does not change any more, so that it can be asked again.
func (c *Enqueue) Seal(room int) {
	if c.Late == nil {
		return
	}
	c.Messages = append(c.Messages, c.Late.Take(room)...)
	c.Late = nil
}

// Traits implements Command. A batch that is moved from another entity is judged message by message, and its
// destination decides once about each number (S-311).
func (c *Enqueue) Traits() Traits {
	if c.Origin != nil {
		return Stores | OnTopic | Idempotent
	}
	return Stores | OnTopic | Sends | Transacts
}

// Weight implements Command.
func (c *Enqueue) Weight() int { return weighMessages(c.Messages) }

// Message is a message on its way in.
type Message struct {
	// SessionID is the group-id; HasSession tells the empty id from an absent one (RUL-17).
	SessionID  string
	HasSession bool
	// MessageID is a canonical text of the message-id for duplicate detection, "" if absent.
	MessageID string
	// PartitionKey is the sender's partition key, "" if absent. On a partitioned entity it belongs to
	// what makes a duplicate (S-191).
	PartitionKey string
	// TTL is the time to live asked by the sender, 0 if none (S-199).
	TTL Millis
	// ScheduledAt is the wall time to activate at, 0 for now (S-107).
	ScheduledAt Wall
	// Body is everything the front end needs to deliver the message again, in the form that package stored owns
	// (docs/formats/message.md). The state shows its head to rules and keeps a BodyRef to it, never the bytes.
	Body []byte
	// BodyOffset is where Body begins in the encoded entry; set by DecodeEntry.
	BodyOffset uint32
	// Rest refers to uploaded parts that follow Body. Body then ends behind the sections that the state
	// looks at.
	Rest Upload
	// Carried is what a moved message brings along, nil for what a client sends.
	Carried *Carried
	// Reserved is the number that a Reserve gave for a message scheduled in a transaction, 0 for none
	// (S-232). The message is stored as scheduled under that number, also if its time has passed.
	Reserved SequenceNumber
}

// Reserve issues Count numbers, 1 to 100, that no message has yet: Outcome.Numbers, ascending. A later
// Commit stores scheduled messages under them. A number that no commit uses stays a gap (S-90).
type Reserve struct{ Count uint32 }

// Traits implements Command.
func (*Reserve) Traits() Traits { return OnTopic | Sends }

// Weight implements Command.
func (*Reserve) Weight() int { return requestBytes }

// SessionProof names a held session and proves that the caller holds it. On an entity or subqueue
// without sessions it is zero.
type SessionProof struct {
	ID    string
	Token LockToken
}

// Lock takes up to Max deliverable messages of the queue, or of the held session, in order. With
// Delete they are removed instead of locked (receive-and-delete, S-142).
type Lock struct {
	Session SessionProof
	Max     uint32 // at least 1
	// MaxBytes bounds the bodies of one answer; at least one message is always given (A21).
	MaxBytes uint32
	Delete   bool
	// Wait is how long the leader may park the request when there is nothing; it never enters the
	// log while parked (A5, A18).
	Wait Millis
}

// Traits implements Command.
func (*Lock) Traits() Traits { return Waits | Takes | Receives }

// Weight implements Command.
func (c *Lock) Weight() int { return requestBytes + len(c.Session.ID) }

// Waiting implements Waiter.
func (c *Lock) Waiting(entity EntityID, sub SubQueue) (WaitKey, uint32, Millis) {
	k := WaitKey{Entity: entity, Sub: sub, Kind: WaitMessage}
	if !c.Session.Token.IsZero() {
		k.HasSession, k.Session = true, c.Session.ID
	}
	return k, max(c.Max, 1), c.Wait
}

// Within implements Waiter.
func (c *Lock) Within(wait Millis) Command {
	d := *c
	d.Wait = wait
	return &d
}

// Verdict is what a receiver decides about a locked message.
type Verdict uint8

// The verdicts. Return is what nobody decided: the message goes back with its count unchanged
// (released, RUL-15; a lock taken for a caller who is gone, S-147).
const (
	Complete Verdict = 1 + iota
	Abandon
	Defer
	Kill // dead-letter
	Return
)

// Settle ends locks. Items are judged one by one: Outcome.Refusals is parallel to Items.
type Settle struct {
	Session SessionProof
	Items   []SettleItem
}

// Traits implements Command.
func (*Settle) Traits() Traits { return Reserved | Transacts | Receives }

// Weight implements Command.
func (c *Settle) Weight() int {
	n := requestBytes + len(c.Session.ID)
	for i := range c.Items {
		it := &c.Items[i]
		n += itemBytes + len(it.Reason) + len(it.Description)
		for _, p := range it.Properties {
			n += len(p.Key) + len(p.Value)
		}
	}
	return n
}

// SettleItem is the verdict on one message.
type SettleItem struct {
	// Seq may be 0 when the caller knows only the token (management requests).
	Seq         SequenceNumber
	Token       LockToken
	Verdict     Verdict
	Delay       Millis     // Abandon only: rest before the next delivery, at most 7 days; a session pauses
	Reason      string     // Kill only (S-155)
	Description string     // Kill only
	Properties  []Property // Abandon, Defer, Kill: merged into the application properties (S-154)
}

// Property is an application property to set on a message; Value is opaque to the state machine
// (one encoded AMQP value).
type Property struct {
	Key   string
	Value []byte
}

// Renew extends message locks to now + LockDuration, all or none (S-156).
type Renew struct{ Tokens []LockToken }

// Traits implements Command.
func (*Renew) Traits() Traits { return Reserved | Transacts | Receives }

// Weight implements Command.
func (c *Renew) Weight() int { return requestBytes + itemBytes*len(c.Tokens) }

// AcceptSession takes the lock of a session: of ID, or with Next of the head of the ready list
// (S-36, S-39). Only Next may be parked (RUL-18).
type AcceptSession struct {
	ID   string
	Next bool
	Wait Millis
	// Shared asks for the session without exclusion. Presented, if not zero, is its session token: who
	// has it takes the session over from whoever holds it (S-326, S-327).
	Shared    bool
	Presented LockToken
}

// Traits implements Command. Only Next waits (RUL-18).
func (c *AcceptSession) Traits() Traits {
	if c.Next {
		return Waits | Takes | Receives
	}
	return Takes | Receives
}

// Weight implements Command.
func (c *AcceptSession) Weight() int { return requestBytes + len(c.ID) }

// Waiting implements Waiter.
func (c *AcceptSession) Waiting(entity EntityID, sub SubQueue) (WaitKey, uint32, Millis) {
	return WaitKey{Entity: entity, Sub: sub, Kind: WaitSession}, 1, c.Wait
}

// Within implements Waiter.
func (c *AcceptSession) Within(wait Millis) Command {
	d := *c
	d.Wait = wait
	return &d
}

// WatchSession waits for the end of the lock of a shared session: it is parked while the lock holds, and
// then refused with SessionLockLost (S-330).
type WatchSession struct {
	Session SessionProof
	Wait    Millis
}

// Traits implements Command.
func (*WatchSession) Traits() Traits { return Waits | Receives | Silent }

// Weight implements Command.
func (c *WatchSession) Weight() int { return requestBytes + len(c.Session.ID) }

// Waiting implements Waiter.
func (c *WatchSession) Waiting(entity EntityID, sub SubQueue) (WaitKey, uint32, Millis) {
	return WaitKey{Entity: entity, Sub: sub, Kind: WaitLost, HasSession: true, Session: c.Session.ID}, 1, c.Wait
}

// Within implements Waiter.
func (c *WatchSession) Within(wait Millis) Command {
	d := *c
	d.Wait = wait
	return &d
}

// RenewSession extends a session lock (S-46).
type RenewSession struct{ Session SessionProof }

// Traits implements Command.
func (*RenewSession) Traits() Traits { return Reserved | Receives }

// Weight implements Command.
func (*RenewSession) Weight() int { return requestBytes }

// ReleaseSession closes a session. Orderly leaves delivery counts as they are; otherwise what was
// handed out and not settled gets one more (S-49, S-52, RUL-2).
type ReleaseSession struct {
	Session SessionProof
	Orderly bool
	// Unsent are messages that were locked for a receiver from which the session was taken over, and that
	// it was never sent; Unsure says that its node does not know them all (S-333).
	Unsent []LockToken
	Unsure bool
}

// Traits implements Command.
func (*ReleaseSession) Traits() Traits { return Reserved | Receives }

// Weight implements Command.
func (c *ReleaseSession) Weight() int {
	return requestBytes + len(c.Session.ID) + itemBytes*len(c.Unsent)
}

// SetSessionState replaces the session's state; with Clear it is removed (S-65 to S-67).
type SetSessionState struct {
	Session SessionProof
	State   []byte
	Clear   bool
	Rest    Upload // the state was uploaded; State is then empty
}

// Traits implements Command.
func (*SetSessionState) Traits() Traits { return Stores | Transacts | Receives }

// Weight implements Command.
func (c *SetSessionState) Weight() int { return requestBytes + len(c.Session.ID) + len(c.State) }

// Receive takes deferred messages by number, all or none (S-181).
type Receive struct {
	Session SessionProof
	Numbers []SequenceNumber
	Delete  bool
}

// Traits implements Command.
func (*Receive) Traits() Traits { return Takes | Receives }

// Weight implements Command.
func (c *Receive) Weight() int { return requestBytes + len(c.Session.ID) + 8*len(c.Numbers) }

// Cancel deletes scheduled messages, all or none (S-115, S-117).
type Cancel struct{ Numbers []SequenceNumber }

// Traits implements Command.
func (*Cancel) Traits() Traits { return Transacts | OnTopic | Sends }

// Weight implements Command.
func (c *Cancel) Weight() int { return requestBytes + 8*len(c.Numbers) }

// DeleteMessages removes up to Max waiting messages that were enqueued before the wall time Before,
// oldest first; Before 0 stands for all that are there (S-263, S-264). On a session entity it works in
// the held session. Outcome.Count says how many; a purge repeats it until that is 0 (S-265).
type DeleteMessages struct {
	Session SessionProof
	Before  Wall
	Max     uint32 // 1 to 4000
}

// Traits implements Command.
func (*DeleteMessages) Traits() Traits { return Frees | Receives }

// Weight implements Command.
func (*DeleteMessages) Weight() int { return requestBytes }

// Redrive sends messages of a dead-letter queue, which Request.Sub names, to the tail of their own main queue again,
// as new messages (S-178). It begins with the oldest one behind the cursor After. It takes up to Max messages that
// are not locked, deferred or at rest. Each filter counts only if it is set: messages that died with Reason, in
// Session, or enqueued in [From, Until). Outcome.Count says how many, Outcome.Next where to go on; 0 is the end. With
// Until set to its beginning a loop never meets a message twice.
type Redrive struct {
	HasReason  bool
	Reason     string
	HasSession bool
	Session    string
	From       Wall // 0 if open
	Until      Wall // 0 if open
	After      uint64
	Max        uint32 // 1 to 1000
	// To is the entity to send them to, by way of the transfer queue; 0 is their own main queue. With
	// To, Sub may be Main: the waiting messages of a queue are moved.
	To EntityID
	// Discard deletes them instead, with To 0: a purge of some dead letters (S-265).
	Discard bool
	// Numbers are the messages to choose, at most 1000. All fields but To and Discard are 0 then. A message that is not
	// there, is locked, scheduled or deferred, or waits in a session that somebody holds, is passed over. With To or
	// Discard, Sub may be Main.
	Numbers []SequenceNumber
}

// Traits implements Command. A discarded message goes nowhere, so only receiving must be allowed.
func (c *Redrive) Traits() Traits {
	if c.Discard {
		return Receives
	}
	return Sends | Receives
}

// Weight implements Command.
func (c *Redrive) Weight() int { return requestBytes + 8*len(c.Numbers) }

// Touch counts as activity on the entity: a peek, or what else the log does not see. A front end sends
// it at most once a minute per entity (A22).
type Touch struct{}

// Traits implements Command.
func (*Touch) Traits() Traits { return OnTopic }

// Weight implements Command.
func (*Touch) Weight() int { return requestBytes }

// DropLocks says that the connection on which these locks were taken is lost: each keeps at most
// Grace more, then expires as usual (RUL-2, RUL-19).
type DropLocks struct {
	Tokens []LockToken
	Grace  Millis
}

// Traits implements Command.
func (*DropLocks) Traits() Traits { return Reserved | Idempotent | OnTopic | Silent }

// Weight implements Command.
func (c *DropLocks) Weight() int { return requestBytes + itemBytes*len(c.Tokens) }

// Revoke is an operator's: it ends locks at once, as if they had run out (S-54). It names one of three: a session,
// the message of a number, or a pump and the incarnation of its node. Of the locks of a pump it ends at most 1000.
// Outcome.Count says how many locks ended; a lock that is not there is MessageNotFound.
type Revoke struct {
	Number     SequenceNumber
	Node       Incarnation
	Pump       uint64
	HasSession bool
	Session    string
	// Operator is who asks, at most 256 bytes; each lock then gets a record in the history Releases.
	Operator string
}

// Traits implements Command.
func (*Revoke) Traits() Traits { return 0 }

// Weight implements Command.
func (*Revoke) Weight() int { return requestBytes }
