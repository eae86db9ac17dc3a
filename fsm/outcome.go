package fsm

import "cmp"

// Refusal is why a command changed nothing. It is data in the log's answer, decided identically on
// every replica; names follow the error codes of S-2.
type Refusal uint8

// The refusals; None means success.
const (
	None                  Refusal = iota
	Stale                         // this share has not seen the entity (version) yet: the router waits or asks the catalog (A2)
	NotLeader                     // entry of a deposed leadership: nothing happened, propose again
	MessageLockLost               // S-18
	SessionLockLost               // S-53
	SessionCannotBeLocked         // S-37
	NoSession                     // accept-next found nothing in its time: ServiceTimeout (S-40)
	MessageNotFound               // S-116, S-181
	EntityNotFound                // the entity was deleted (S-259)
	EntityExists                  // S-260
	EntityDisabled                // S-252
	MessageSizeExceeded           // S-226
	QuotaExceeded                 // S-225
	SessionRequired               // plain operation on a session entity, or a message without session id (S-30, S-33)
	SessionNotSupported           // session operation on an entity without sessions (S-34)
	InvalidOperation              // not allowed by the entity's configuration
	InvalidArgument               // malformed input
	Busy                          // bounded memory is full; retry later
	NodeExpired                   // the caller's incarnation was declared lost (RUL-19)
	TransactionAborted            // one of a Commit's operations was refused; Detail names the cause (S-241)
	TransactionTooLarge           // more messages than a transaction may have (S-239)
	Unauthorized                  // an operator's decision stands against it (S-256)
	UploadLost                    // uploaded parts are not there (any more): upload all of them again
	lastRefusal                   // behind the last one
)

// Outcome is what one command did.
type Outcome struct {
	Refusal Refusal
	// Detail makes a refusal readable: current and maximum size, missing numbers. No secrets.
	Detail string
	// Repeated says that the answer is the remembered one of an earlier attempt (A6).
	Repeated bool
	// Duplicate is parallel to the numbers of an Enqueue with duplicate detection; nil otherwise.
	Duplicate []bool
	// Numbers are the numbers given by Enqueue, in order.
	Numbers []SequenceNumber
	// EnqueuedAt is the wall time of an Enqueue.
	EnqueuedAt Wall
	// Locked are the messages taken by Lock or Receive, in order.
	Locked []Delivery
	// Refusals is parallel to Settle.Items.
	Refusals []Refusal
	// LockedUntil answers Renew, AcceptSession and RenewSession: wall time.
	LockedUntil Wall
	// Session answers AcceptSession.
	Session SessionProof
	// Shared answers an AcceptSession without exclusion: the session token (S-326).
	Shared LockToken
	// Data is the catalog's answer, in its own encoding.
	Data []byte
	// Count is how many messages DeleteMessages removed or Redrive sent again.
	Count uint64
	// Next is where Redrive goes on, 0 at the end. Forward answers with the least Origin.Below: no number below it is in
	// transit.
	Next uint64
	// Ops are the outcomes of a Commit's operations, parallel to Commit.Ops; after a refusal they end
	// with the operation that was refused.
	Ops []Outcome
	// Moves answers Forward, parallel to Locked: where each message goes.
	Moves []Move
}

// MessageState is a message's state as peek reports it (S-6).
type MessageState uint8

// The states.
const (
	StateActive MessageState = iota
	StateDeferred
	StateScheduled
)

// Delivery is a message on its way out: to a receiver, or to a peek.
type Delivery struct {
	Seq         SequenceNumber
	EnqueuedSeq SequenceNumber // number in the entity it was first sent to, 0 if it is there still (S-102)
	Token       LockToken      // zero when not locked (receive-and-delete, peek)
	LockedUntil Wall           // 0 when not locked
	EnqueuedAt  Wall           // 0 while scheduled
	ExpiresAt   Wall           // 0 if never
	ScheduledAt Wall           // 0 if it was not scheduled
	Attempts    uint32         // f: finished, unsuccessful deliveries (S-13)
	State       MessageState
	Reason      string // dead-letter reason, "" outside a DLQ or when none was given
	Description string // dead-letter description
	Source      string // entity it was dead-lettered from when it was forwarded (S-177)
	// Properties are merged over the application properties of Body, replacing those with exactly the
	// same key. One without Value removes it: a rule's action has done so (S-220).
	Properties []Property
	// System are system properties that a rule's action has changed on this copy (S-220).
	System []SystemValue
	Ref    BodyRef
	Rest   []BodyRef // of a large body the parts that follow Ref
	Body   []byte    // filled by the partition from Ref, and by the router from Rest; never set by State
}

// First is the number in the entity that the message was first sent to (S-102).
func (d *Delivery) First() SequenceNumber { return cmp.Or(d.EnqueuedSeq, d.Seq) }

// Result is what Apply did with one entry.
type Result struct {
	Outcomes []Outcome // parallel to Entry.Requests
	// Freed are bodies that nothing in the state refers to any more.
	Freed []BodyRef
	// Wake names what may now have something to take; each at most once. WokenBy is parallel to it: the place of the
	// last request that woke it. A request behind that place has seen all there is.
	Wake    []WaitKey
	WokenBy []int
	// Dropped are entities that this entry removed: whoever waits on them is told.
	Dropped []EntityID
	// Drops are examples of messages that ended without being completed, one for each entity and reason, at most 64.
	// The leader logs and counts them.
	Drops []Drop
	// Tallies count what the entry did, by entity. They are valid until the next entry is applied.
	Tallies []Tally
	// Idle are entities whose share here has been idle for their AutoDeleteOnIdle. The leader tells the
	// catalog's, which asks all shares with an Idle query before it deletes (A22). Each is named again
	// every minute while that lasts.
	Idle []EntityID
}

// WaitKind tells what a waiter waits for.
type WaitKind uint8

// The things to wait for.
const (
	WaitMessage WaitKind = iota // a deliverable message of the queue, subqueue or held session
	WaitSession                 // a session that AcceptSession{Next} could take
	WaitLost                    // the end of a session lock: WatchSession
)

// WaitKey is what a parked request or an Await waits for. Session is the id of the held session. HasSession is set
// for a wait for messages of a held session, or for the end of its lock.
type WaitKey struct {
	Entity     EntityID
	Sub        SubQueue
	Kind       WaitKind
	HasSession bool
	Session    string
}

// DropReason says why a message ended although nobody completed it, and is in no dead-letter queue.
type DropReason uint8

// The reasons. Their numbers are in images and answers: new ones go last.
const (
	DropMaxDelivery DropReason = iota // MaxDeliveryCount was reached, there is no DLQ (S-169)
	DropExpired                       // its time to live ended, and it is not dead-lettered (S-203)
	DropPurged                        // deleted by a purge or a batch delete (S-263, S-265)
	DropQuota                         // a send was refused with QuotaExceeded (S-225)
	DropForward                       // its destination refused it, or it was moved too often; no DLQ (S-209)
	DropFilter                        // a rule failed on it, and the copy is not dead-lettered (S-221)
	DropSession                       // a copy without session id for a subscription with sessions; no DLQ (S-31)
	DropUnmatched                     // sent to a topic, and no rule selected it (S-217)
	DropDuplicate                     // its message id was accepted before (S-188)
	DropCancelled                     // scheduled, and its sender cancelled it (S-115)
	DropWithEntity                    // its entity was deleted (S-259)
	DropReasons                       // how many there are
)

var dropReasons = [DropReasons]string{
	DropMaxDelivery: "max-delivery-count", DropExpired: "expired", DropPurged: "purged",
	DropQuota: "quota-exceeded", DropForward: "forward-refused", DropFilter: "filter-error",
	DropSession: "session-id-missing", DropUnmatched: "no-subscription", DropDuplicate: "duplicate",
	DropCancelled: "cancelled", DropWithEntity: "entity-deleted",
}

// String returns the name that metrics, the operations API and log lines use.
func (r DropReason) String() string {
	if r >= DropReasons {
		return "unknown"
	}
	return dropReasons[r]
}

// told reports whether a log line tells of the messages. The other reasons are the ordinary use of a
// topic, of duplicate detection and of cancelling; these are counted only.
func (r DropReason) told() bool {
	return r != DropUnmatched && r != DropDuplicate && r != DropCancelled
}

// Drops counts dropped messages by reason, since the share was created.
type Drops [DropReasons]uint64

// Add adds o to d.
func (d *Drops) Add(o *Drops) {
	for why, n := range o {
		d[why] += n
	}
}

// Drop is one example of the messages that an entry dropped for one reason, and how many there were.
type Drop struct {
	Entity EntityID
	Name   string // of the entity
	Reason DropReason
	Number SequenceNumber // of the example, 0 if it had none
	// MessageID is the example's, "" if it is only in the body that Ref names.
	MessageID string
	Ref       BodyRef // of the example; Length 0 if it is not stored
	Count     uint64  // messages that this entry dropped
	Total     uint64  // messages that the share dropped for this reason since it was created
}

// EntityDrops are the counters of one entity in this partition.
type EntityDrops struct {
	Entity EntityID
	Name   string
	Drops  Drops
}
