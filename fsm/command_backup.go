package fsm

// HoldForwards lets no forward make progress in the partition: until the hold is over a Forward is refused with Busy.
// Nothing but a forward moves a message from one share to another. So images of partitions fit together that are taken
// while one hold is in force in all of them (docs/decisions/0062-backup-and-restore.md). A hold is in the log, so a new
// leader holds, too. While another hold is in force it is refused with Busy.
type HoldForwards struct {
	Hold uint64 // chosen at random for each backup; never 0
	// For is how long the hold lasts by the lease clock, at most MaxHold; 0 ends it. An end of a hold that is over
	// changes nothing.
	For Millis
	// Renew lengthens a hold that is in force, and is refused with InvalidOperation if it is not. So who holds learns
	// that no forward made progress since the hold began.
	Renew bool
}

// MaxHold is how long a hold may last: a backup that is given up must not stop forwards for long.
const MaxHold Millis = 30_000

// Traits implements Command.
func (*HoldForwards) Traits() Traits { return Reserved | Idempotent }

// Weight implements Command.
func (*HoldForwards) Weight() int { return requestBytes }

// RestoreStep is what a Restore does.
type RestoreStep uint8

// The steps of a restore, in their order. Each may be repeated.
const (
	// RestoreBegin turns a share that has never been used into one that is being restored, and raises its counters to
	// those given. Such a share takes a Restore, a BodyPart and the deletion of its entity. Everything else is refused
	// with Busy, and time does nothing in it.
	RestoreBegin RestoreStep = 1 + iota
	// RestorePage puts a part of the content back. It leaves alone what is there already.
	RestorePage
	// RestoreEnd makes the share an ordinary one. The next entries do what was due meanwhile.
	RestoreEnd
)

// Restore puts back what a backup holds of one share. Numbers, counts, times and states stay what they were. A page is
// stored whole, or refused whole with InvalidArgument. A message is known by its subqueue and arrival, a record by its
// order, a session and an id by themselves. So a page may be repeated, and pages may come in any order. Records and
// pauses come behind the messages and sessions that they refer to, else the reference is left out.
type Restore struct {
	Step     RestoreStep
	Counters ShareCounters // RestoreBegin alone
	// Bodies are stored once each, whatever refers to them. Only Body and Rest of a Message are used.
	Bodies []Message
	// Uses are parallel to Bodies: what refers to each of them, at least one.
	Uses     [][]BodyUse
	Sessions []RestoredSession
	IDs      []RestoredID // in the order of acceptance
	Records  []RestoredRecord
	Origins  []RestoredOrigin
}

// Traits implements Command.
func (*Restore) Traits() Traits { return Stores | OnTopic | Idempotent | Silent }

// Weight implements Command.
func (c *Restore) Weight() int {
	n := requestBytes + weighMessages(c.Bodies)
	for i := range c.Uses {
		n += 3 * itemBytes * len(c.Uses[i])
		for j := range c.Uses[i] {
			n += int(c.Uses[i][j].Message.bytes())
		}
	}
	for i := range c.Sessions {
		n += itemBytes + len(c.Sessions[i].ID) + len(c.Sessions[i].State)
	}
	n += itemBytes * len(c.IDs)
	for i := range c.Records {
		n += 2*itemBytes + len(c.Records[i].MessageID) + len(c.Records[i].SessionID) + len(c.Records[i].Operator)
	}
	for i := range c.Origins {
		n += itemBytes + 10*len(c.Origins[i].Decided)
	}
	return n
}

// ShareCounters are the numbers that a share has given last, and when it was used.
type ShareCounters struct {
	Arrival      uint64
	LastTransfer uint64 // key in the transfer queue
	Moves        [TransferQueue + 1]uint64
	Histories    [Releases + 1]uint64
	Touched      Wall
	Forgotten    Wall // message ids that were accepted up to then are out of their window for good
	Drops        Drops
}

// BodyUse is one reference to a body: by a message or, with IsRecord, by a record.
type BodyUse struct {
	Entity   EntityID // 0 for Request.Entity; else a subscription of that topic
	IsRecord bool
	Message  RestoredMessage
	Record   RestoredRecord
}

// RestoredMessage is a message as it stands in its share. A lock is no part of it.
type RestoredMessage struct {
	Sub      SubQueue
	Arrival  uint64 // key in the transfer queue
	State    MessageState
	Attempts uint32
	At       Wall // enqueued; while scheduled the time to activate
	Expires  Wall // 0 if never; while it is scheduled or in the transfer queue its time to live
	// MessageID, HasSession and SessionID: the session of a message, or what a topic keeps of a scheduled one. The id of
	// other messages is there if a history is on.
	MessageID  string
	HasSession bool
	SessionID  string
	Rest       Millis   // how long it still may not be delivered
	HasFirst   bool     // Carried tells where it was first sent to
	Carried    *Carried // nil if there is nothing to tell

	ScheduledAt Wall
	InSession   bool // it died in the session DiedIn
	DiedIn      string
	To          EntityID       // in the transfer queue: its destination
	Reserved    SequenceNumber // in the transfer queue: its number there
	Stuck       bool           // a dead letter that its destination will not have
	// Transit is its number in transit, 0 if it is not; TransitTo is where it goes.
	Transit   uint64
	TransitTo EntityID
}

func (m *RestoredMessage) bytes() uint64 {
	x := m.extra()
	return x.bytes() + uint64(len(m.MessageID)+len(m.SessionID))
}

// RestoredSession is what a session has beside its messages.
type RestoredSession struct {
	ID       string
	HasState bool
	State    []byte
	StateAt  Wall
	Parts    Upload // the state was uploaded; State is then empty
	Rest     Millis // for how long nothing of it is delivered
}

// RestoredID is a message id in the duplicate window.
type RestoredID struct {
	Hash    [16]byte
	At      Wall
	Arrival uint64
}

// RestoredRecord is a record of a history. Ref stays empty: a body is given beside it.
type RestoredRecord struct {
	Kind HistoryKind
	HistoryRecord
	Arrival uint64 // of the message while it is there, else 0
}

// RestoredOrigin is what is remembered of messages that were moved here from one queue.
type RestoredOrigin struct {
	Entity    EntityID
	Partition PartitionID
	Sub       SubQueue
	Below     uint64
	Decided   []Moved // without Detail
}
