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
	Active             uint64 `json:"active"` // Active and Deferred in the main queue, locked or not
	Scheduled          uint64 `json:"scheduled"`
	DeadLetter         uint64 `json:"deadLetter"`
	TransferDeadLetter uint64 `json:"transferDeadLetter"`
	Transfer           uint64 `json:"transfer"`
	Locked             uint64 `json:"locked"`
	Deferred           uint64 `json:"deferred"`
	Sessions           uint64 `json:"sessions"`
	SizeBytes          uint64 `json:"sizeBytes"`
	AccessedAt         Wall   `json:"accessedAt"` // 0 if never
	Dropped            Drops  `json:"-"`          // by reason; the operations API gives it by name
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

// HistoryKind tells the histories of an entity apart.
type HistoryKind uint8

// The histories.
const (
	Processed HistoryKind = iota // messages completed, or received and deleted (S-274)
	Accepted                     // messages sent, and how they left (S-275)
	Releases                     // locks and sessions that operators took back (S-54); always kept
)

// HistoryEnd says how a message left.
type HistoryEnd uint8

// The ends. A message that was dead-lettered has left; what becomes of it in the DLQ is not told.
const (
	StillThere HistoryEnd = iota
	Completed
	DeadLettered
	Expired
	Cancelled
	Deleted   // by DeleteMessages, or dropped at the end of its deliveries
	Forwarded // moved to another entity
	Released  // of Releases: its lock, or that of its session, was taken back; Operator says by whom
)

// HistoryRecord is one line of a history.
type HistoryRecord struct {
	Order      uint64 // its place, ascending; also the cursor of paging
	Number     SequenceNumber
	MessageID  string
	SessionID  string // "" if the message had none, or was in a DLQ
	EnqueuedAt Wall
	At         Wall   // accepted, processed, or released
	Deliveries uint32 // processed and released: how often it was delivered
	// By is the request that accepted or processed the message. Of a released lock it has the node and the
	// pump that held the lock, of a released session the node alone.
	By       RequestID
	End      HistoryEnd
	EndedAt  Wall    // accepted only, 0 while the message is there
	Ref      BodyRef // processed, if bodies are kept; Length 0 if not
	Operator string  // of Releases: who took it back, at most 256 bytes
}

// LockInfo describes one lock to an operator (S-272).
type LockInfo struct {
	Number      SequenceNumber
	Digits      [4]byte // of the token: the first 8 hexadecimal digits behind the partition id
	TakenAt     Wall
	LockedUntil Wall
	State       MessageState
	HasSession  bool
	SessionID   string
	Shared      bool      // the session is held without exclusion (S-335)
	By          RequestID // node and pump that took it
}
