package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Kind is what a client asked for.
type Kind string

// The kinds of operation.
const (
	Send            Kind = "send"             // Message; a result is not needed
	Schedule        Kind = "schedule"         // Message with ScheduledAt; Seq is the result
	Cancel          Kind = "cancel"           // Seq
	Receive         Kind = "receive"          // Message is the result: one operation per delivery
	ReceiveDeferred Kind = "receive-deferred" // Seq; Message is the result
	Complete        Kind = "complete"         // Message.Seq and Token, as of all settlements
	Abandon         Kind = "abandon"
	Defer           Kind = "defer"
	Kill            Kind = "dead-letter"
	Release         Kind = "release"
	Renew           Kind = "renew"  // Token; Until is the result
	Accept          Kind = "accept" // Session, Holder and Until are the result; Want is the argument
	RenewSession    Kind = "renew-session"
	CloseSession    Kind = "close-session" // the holder lets go, or knows that it has lost the session
	SetState        Kind = "set-state"     // State
	GetState        Kind = "get-state"     // State is the result
	Peek            Kind = "peek"          // From; Messages are the result
	Create          Kind = "create"        // Entity; EntityID is the result
	Update          Kind = "update"        // Entity, Label; EntityID is the result
	Delete          Kind = "delete"        // Entity
	Get             Kind = "get"           // Entity; EntityID (0: there is none) and Label are the result
	Lost            Kind = "lost"          // the client's connection ended, orderly or not
)

// Outcome is how an operation ended for its client.
type Outcome string

// The outcomes. A failed operation has surely had no effect; of an unknown one nobody can tell.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "fail"
	Unknown Outcome = "unknown"
)

// The places of a message.
const (
	InMain       = ""
	InDeadLetter = "$DeadLetterQueue"
)

// States of a message as peek tells them.
const (
	Active    = 0
	Deferred  = 1
	Scheduled = 2
)

// Message is one message as its sender made it, or as a receiver saw it.
type Message struct {
	ID         string `json:"id"`             // unique in the history
	Hash       uint64 `json:"hash,omitempty"` // of body and properties
	Session    string `json:"session,omitempty"`
	HasSession bool   `json:"has_session,omitempty"`
	TTL        int64  `json:"ttl,omitempty"` // milliseconds, 0 if none

	Seq         int64  `json:"seq,omitempty"`
	EnqueuedSeq int64  `json:"enqueued_seq,omitempty"`
	Token       string `json:"token,omitempty"`
	Attempts    uint32 `json:"attempts,omitempty"` // finished, unsuccessful deliveries
	State       int    `json:"state,omitempty"`
	// Server times in milliseconds since the epoch, 0 if none.
	LockedUntil int64  `json:"locked_until,omitempty"`
	EnqueuedAt  int64  `json:"enqueued_at,omitempty"`
	ExpiresAt   int64  `json:"expires_at,omitempty"`
	ScheduledAt int64  `json:"scheduled_at,omitempty"`
	Reason      string `json:"reason,omitempty"` // of dead-lettering
}

// Op is one operation of one client. Times are nanoseconds since the epoch on one clock for the whole
// history; an operation that never returned has Return 0.
type Op struct {
	ID      int     `json:"op"`
	Client  int     `json:"client"`
	Kind    Kind    `json:"kind"`
	Entity  string  `json:"entity"`
	Sub     string  `json:"sub,omitempty"` // InMain or InDeadLetter
	Invoke  int64   `json:"invoke"`
	Return  int64   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	// Condition is the broker's word for a refusal.
	Condition string `json:"condition,omitempty"`
	// Conn numbers the connection, so that what ends with it is known.
	Conn int `json:"conn,omitempty"`

	Message  Message   `json:"message,omitzero"`
	Messages []Message `json:"messages,omitempty"`
	Seq      int64     `json:"seq,omitempty"`
	From     int64     `json:"from,omitempty"`
	Max      int       `json:"max,omitempty"`

	Session string `json:"session,omitempty"`
	Want    string `json:"want,omitempty"`   // the session asked for, "" for the next one
	Holder  int    `json:"holder,omitempty"` // numbers the acceptances of sessions
	Until   int64  `json:"until,omitempty"`  // server time, milliseconds
	// Shared is an accept without exclusion; Over is the holder whose session token it presented.
	Shared bool   `json:"shared,omitempty"`
	Over   int    `json:"over,omitempty"`
	State  string `json:"state,omitempty"` // "-" is none

	EntityID uint64 `json:"entity_id,omitempty"`
	Label    string `json:"label,omitempty"`
}

// Ok reports whether the operation is known to have worked.
func (o *Op) Ok() bool { return o.Outcome == OK }

// Maybe reports whether the operation may have had its effect.
func (o *Op) Maybe() bool { return o.Outcome != Failed }

// End is when the operation was over at the latest: never, if it did not return or its outcome is
// unknown.
func (o *Op) End() int64 {
	if o.Return == 0 || o.Outcome == Unknown {
		return Never
	}
	return o.Return
}

// Never is later than every time.
const Never = int64(1<<63 - 1)

// Settles reports whether the kind ends a message lock.
func (k Kind) Settles() bool {
	switch k {
	case Complete, Abandon, Defer, Kill, Release:
		return true
	}
	return false
}

// Terminal reports whether the kind takes a message from its place for good.
func (k Kind) Terminal() bool { return k == Complete || k == Kill }

// Queue is what the checkers must know of an entity.
type Queue struct {
	Name         string `json:"name"`
	Sessions     bool   `json:"sessions,omitempty"`
	LockMillis   int64  `json:"lock_millis"`
	MaxDelivery  uint32 `json:"max_delivery"`
	DeadExpired  bool   `json:"dead_expired,omitempty"`
	Partitioned  bool   `json:"partitioned,omitempty"`
	DedupMillis  int64  `json:"dedup_millis,omitempty"` // 0: no duplicate detection
	DefaultTTL   int64  `json:"default_ttl,omitempty"`  // milliseconds, 0 if none
	NoDeadLetter bool   `json:"no_dead_letter,omitempty"`
	// Mortal says that senders ask for a time to live.
	Mortal bool `json:"mortal,omitempty"`
}

// Place is where a message was found at the end.
type Place struct {
	Entity  string  `json:"entity"`
	Sub     string  `json:"sub,omitempty"`
	Message Message `json:"message"`
}

// History is everything that clients did and saw.
type History struct {
	Queues []Queue `json:"queues"`
	Ops    []*Op   `json:"-"`
	// Final is what was left in the entities when the faults had ended; HasFinal says that it is
	// complete.
	Final    []Place `json:"-"`
	HasFinal bool    `json:"has_final"`
	// Epsilon is how imprecise the history's times are, in nanoseconds, WallEpsilon how wrong the dates
	// of the servers may be.
	Epsilon     int64 `json:"epsilon"`
	WallEpsilon int64 `json:"wall_epsilon"`
}

// Queue returns the description of an entity, nil if there is none.
func (h *History) Queue(name string) *Queue {
	for i := range h.Queues {
		if h.Queues[i].Name == name {
			return &h.Queues[i]
		}
	}
	return nil
}

// Recorder collects a history from many clients at once.
type Recorder struct {
	mu   sync.Mutex
	h    History
	conn int
	held int
}

// NewRecorder returns a recorder of a history with these entities.
func NewRecorder(epsilon, wall time.Duration, queues ...Queue) *Recorder {
	return &Recorder{h: History{Queues: queues, Epsilon: int64(epsilon), WallEpsilon: int64(epsilon + wall)}}
}

// Begin notes that a client asks for something now. The operation is unknown until End.
func (r *Recorder) Begin(client, conn int, kind Kind, entity, sub string) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &Op{
		ID: len(r.h.Ops) + 1, Client: client, Conn: conn, Kind: kind, Entity: entity, Sub: sub,
		Invoke: time.Now().UnixNano(), Outcome: Unknown,
	}
	r.h.Ops = append(r.h.Ops, o)
	return o
}

// End notes the outcome of an operation; fill sets the results, under the recorder's lock.
func (r *Recorder) End(o *Op, outcome Outcome, fill func(*Op)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Return, o.Outcome = time.Now().UnixNano(), outcome
	if fill != nil {
		fill(o)
	}
}

// Set changes the arguments of an operation that is under way.
func (r *Recorder) Set(o *Op, fill func(*Op)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fill(o)
}

// NewConn numbers a connection, NewHolder an acceptance of a session.
func (r *Recorder) NewConn() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn++
	return r.conn
}

// NewHolder numbers an acceptance of a session.
func (r *Recorder) NewHolder() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held++
	return r.held
}

// Copy returns what was recorded so far. Operations that are under way are unknown in it.
func (r *Recorder) Copy() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	h.Ops = make([]*Op, len(r.h.Ops))
	for i, o := range r.h.Ops {
		one := *o
		h.Ops[i] = &one
	}
	return &h
}

// Finish adds what was left at the end.
func (r *Recorder) Finish(final []Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Final, r.h.HasFinal = final, true
}

// History returns what was recorded. The recorder must not be used any more.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.h
}

// Write writes the history as JSON, one line each: itself, its operations, what was left.
func (h *History) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	if err := e.Encode(h); err != nil {
		return err
	}
	for _, o := range h.Ops {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	for i := range h.Final {
		if err := e.Encode(struct {
			Final *Place `json:"final"`
		}{&h.Final[i]}); err != nil {
			return err
		}
	}
	return b.Flush()
}

// Read reads what Write wrote.
func Read(r io.Reader) (*History, error) {
	d := json.NewDecoder(r)
	h := &History{}
	if err := d.Decode(h); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	for d.More() {
		var line struct {
			Op
			Final *Place `json:"final"`
		}
		if err := d.Decode(&line); err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
		if line.Final != nil {
			h.Final = append(h.Final, *line.Final)
			continue
		}
		o := line.Op
		h.Ops = append(h.Ops, &o)
	}
	return h, nil
}

// Violation is one broken promise.
type Violation struct {
	Invariant string
	Text      string
	Ops       []*Op // that show it
}

// String returns the violation on a few lines.
func (v Violation) String() string {
	s := v.Invariant + ": " + v.Text
	for _, o := range v.Ops {
		line, err := json.Marshal(o)
		if err != nil {
			line = []byte(err.Error())
		}
		s += "\n    " + string(line)
	}
	return s
}
