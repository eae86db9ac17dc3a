package fsm

import "github.com/busbar-mq/busbar/fsm/rule"

// Commit does all of Ops at one place of the log, or nothing of them (S-232, A23). Allowed are
// Enqueue, Transfer, Cancel, Settle, Renew and SetSessionState (S-231); every operation concerns an
// entity of this partition. If one is refused, or one item of a Settle, Outcome.Refusal is
// TransactionAborted, Outcome.Detail names the cause and everything is as it was.
type Commit struct {
	ID  []byte // the transaction's, for people who read logs; at most 64 bytes
	Ops []Op   // in the order in which the client asked
}

// Traits implements Command.
func (*Commit) Traits() Traits { return Stores }

// Weight implements Command.
func (c *Commit) Weight() int {
	n := requestBytes
	for i := range c.Ops {
		n += c.Ops[i].Command.Weight()
	}
	return n
}

// Op is one operation of a transaction.
type Op struct {
	Entity  EntityID
	Sub     SubQueue
	Command Command
}

// Transfer stores messages in the transfer queue of Request.Entity, from where the forwarder moves them to the entity
// To, exactly once (S-236). The proposer has seen that To exists and that the messages are good for it (S-237). It is
// answered like an Enqueue, without numbers.
type Transfer struct {
	To       EntityID
	Messages []Message
}

// Traits implements Command.
func (*Transfer) Traits() Traits { return Stores | Transacts | OnTopic | Sends }

// Weight implements Command.
func (c *Transfer) Weight() int { return weighMessages(c.Messages) }

// Forward is the forwarder's one command to the source of messages that move. Request.Sub names the source: the main
// queue of an entity with ForwardTo, the dead-letter queue of one with ForwardDeadLettersTo, or a transfer queue. It
// ends the moves in Done and takes up to Max further messages, in order, which are in transit from then on:
// Outcome.Locked and, parallel, Outcome.Moves.
type Forward struct {
	// Epoch is that of the leadership that the forwarder belongs to; another one is refused with
	// NotLeader, so that what a forwarder of an earlier leadership believes is not believed.
	Epoch uint64
	Done  []Moved
	// To is the entity that ForwardTo or ForwardDeadLettersTo names now; it is kept with each move. 0
	// stands for none: what is taken then is to be refused with EntityNotFound. Ignored for the
	// transfer queue, whose messages know where they go.
	To       EntityID
	Max      uint32 // 0 to take nothing
	MaxBytes uint32
}

// Traits implements Command.
func (*Forward) Traits() Traits { return Reserved | OnTopic }

// Weight implements Command.
func (c *Forward) Weight() int { return requestBytes + itemBytes*len(c.Done) }

// Moved says how one move ended. With None the message arrived and leaves its source. Otherwise the destination
// refused it, and it is dead-lettered where it is (S-209, S-237). A move that may still work is not reported: it
// stays in transit and is tried again.
type Moved struct {
	Number  uint64
	Refusal Refusal
	Detail  string
}

// Move is a message in transit.
type Move struct {
	Number uint64   // ascends in its subqueue and is given once
	To     EntityID // 0 if the name of the destination named nothing
	Hops   uint8    // moves made before this one (S-208)
	TTL    Millis   // the rest of its life, 0 if it has no end
}

// Origin says where the messages of an Enqueue come from. The destination decides once about each
// number of an origin and answers a repetition like the first time, however late (S-311):
// Outcome.Refusals is parallel to Numbers, Outcome.Numbers says 0 for what was refused, dropped as a
// duplicate, or stored by an earlier attempt. Busy is no decision: from there on all is asked again.
type Origin struct {
	Entity    EntityID
	Partition PartitionID
	Sub       SubQueue
	// Below is the smallest number of those that come to the destination and are in transit. Smaller ones are not asked for
	// again, and the destination forgets them.
	Below   uint64
	Numbers []uint64 // parallel to Enqueue.Messages, ascending
}

// Carried is what a moved message keeps of its past. See Carry.
type Carried struct {
	EnqueuedSeq SequenceNumber // in the entity it was first sent to (S-102); 0 if this is the first
	Hops        uint8          // this move included
	Reason      string         // of a forwarded dead letter (S-177)
	Description string
	Source      string
	Properties  []Property
	System      []SystemValue
}

// SystemValue is a system property that differs from the stored message: Value is one encoded AMQP
// value of the type that the property has on the wire, empty if it was removed. Only these occur:
// Label (properties.subject), MessageID, CorrelationID, To, ReplyTo, ReplyToSessionID, SessionID,
// ContentType (symbol), PartitionKey, ViaPartitionKey and ScheduledEnqueueTime (annotations).
type SystemValue struct {
	Property rule.SystemProperty
	Value    []byte
}

// EachMessage calls f with every message that the command stores, in the order of the encoded entry.
func EachMessage(c Command, f func(*Message)) {
	switch c := c.(type) {
	case *Enqueue:
		for i := range c.Messages {
			f(&c.Messages[i])
		}
	case *Transfer:
		for i := range c.Messages {
			f(&c.Messages[i])
		}
	case *Restore:
		for i := range c.Bodies {
			f(&c.Bodies[i])
		}
	case *Rehome:
		for i := range c.Bodies {
			f(&c.Bodies[i])
		}
	case *Commit:
		for i := range c.Ops {
			EachMessage(c.Ops[i].Command, f)
		}
	}
}
