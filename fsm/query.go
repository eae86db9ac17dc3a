package fsm

// Query is a question to a partition's state. The set is closed: Peek, GetSessionState, Counts,
// ListSessions, Ask, Idle, ListLocks, History, Browse, Moving, ReadBody.
type Query interface{ query() }

// Peek browses messages from a number on, without locking (S-246 to S-251). With HasSession only that
// session's.
type Peek struct {
	From       SequenceNumber
	Max        uint32
	MaxBytes   uint32
	HasSession bool
	Session    string
}

// GetSessionState reads the state of a held session (S-64, S-68).
type GetSessionState struct{ Session SessionProof }

// Counts asks for the counters of the entity (S-244).
type Counts struct{}

// ListSessions lists session ids after a given one, in id order (S-83). UpdatedAfter, if not 0,
// keeps only sessions whose state was set after that wall time (S-84).
type ListSessions struct {
	After        string
	HasAfter     bool
	Max          uint32
	UpdatedAfter Wall
}

// Idle asks for how long the share has been idle: Answer.IdleFor (S-258). An entity is idle for the
// shortest time of its shares.
type Idle struct{}

// ListLocks lists the locks of the subqueue in the order of their messages' arrival, behind the
// cursor After: Answer.Locks, at most 1000, and Answer.Next if there are more (S-272).
type ListLocks struct {
	After uint64
	Max   uint32
}

// History reads a history, oldest first, behind the cursor After: Answer.History, at most 1000, and
// Answer.Next if there are more (S-274, S-275). Answer.Messages is parallel to it and carries the
// bodies that were kept, at most MaxBytes of them if that is not 0.
type History struct {
	Kind     HistoryKind
	After    uint64
	Max      uint32
	MaxBytes uint32
}

// Browse lists messages like Peek, but only those in the States that are asked for, each a bit
// 1 << state, 0 for all; with HasSession only those of that session, which in a DLQ is the one they
// died in. It goes on behind the cursor After and looks at a bounded number of messages, so an answer
// may be empty although there are more: Answer.Next tells, it is 0 at the end.
type Browse struct {
	From       SequenceNumber
	After      uint64
	Max        uint32
	MaxBytes   uint32
	States     uint8
	HasSession bool
	Session    string
}

// Moving lists what is in transit from the subqueue, which may be the transfer queue, behind the
// number After: Answer.Messages with bodies, at most MaxBytes of them but at least one, and
// Answer.Moves, parallel; Answer.Next if there is more. It is what a new leader goes on with.
type Moving struct {
	After    uint64
	Max      uint32
	MaxBytes uint32
}

// ReadBody reads bodies, or parts of one, that the state has told of: Answer.Data, one behind the other. Any replica
// that has them answers, without a barrier: bodies never change. A request for a message that was freed meanwhile is
// refused with MessageNotFound.
type ReadBody struct{ Refs []BodyRef }

// Ask is a question to the catalog group, in the catalog's own encoding.
type Ask struct{ Data []byte }

func (*Peek) query()            {}
func (*GetSessionState) query() {}
func (*Counts) query()          {}
func (*ListSessions) query()    {}
func (*Ask) query()             {}
func (*Idle) query()            {}
func (*ListLocks) query()       {}
func (*History) query()         {}
func (*Browse) query()          {}
func (*Moving) query()          {}
func (*ReadBody) query()        {}

// QueryRequest is a query on its way to a partition.
type QueryRequest struct {
	Entity EntityID
	Sub    SubQueue
	Query  Query
}

// Answer answers a Query. Which fields are set follows from the query.
type Answer struct {
	Refusal  Refusal
	Detail   string
	Messages []Delivery // Peek
	State    []byte     // GetSessionState
	Parts    []BodyRef  // GetSessionState: of a large state, which State does not hold then
	HasState bool       // tells an empty state from none (S-67)
	Sessions []string   // ListSessions
	Counts   EntityCounts
	Data     []byte // Ask
	IdleFor  Millis // Idle: lease time; 0 while the share is in use
	Next     uint64 // the cursor to go on behind, 0 at the end: ListLocks, History, Browse, Moving
	History  []HistoryRecord
	Locks    []LockInfo
	Moves    []Move // Moving
}

// EntityCounts are the counters of one share of an entity (S-244). Add them up over the shares.
type EntityCounts struct {
	Active             uint64 // Active and Deferred in the main queue, locked or not
	Scheduled          uint64
	DeadLetter         uint64
	TransferDeadLetter uint64
	Transfer           uint64
	Locked             uint64
	Deferred           uint64
	Sessions           uint64
	SizeBytes          uint64
	AccessedAt         Wall  // 0 if never
	Dropped            Drops `json:"-"` // by reason; the operations API gives it by name
}

// Add adds o to c; AccessedAt becomes the later one.
func (c *EntityCounts) Add(o EntityCounts) {
	c.Active += o.Active
	c.Scheduled += o.Scheduled
	c.DeadLetter += o.DeadLetter
	c.TransferDeadLetter += o.TransferDeadLetter
	c.Transfer += o.Transfer
	c.Locked += o.Locked
	c.Deferred += o.Deferred
	c.Sessions += o.Sessions
	c.SizeBytes += o.SizeBytes
	c.AccessedAt = max(c.AccessedAt, o.AccessedAt)
	c.Dropped.Add(&o.Dropped)
}
