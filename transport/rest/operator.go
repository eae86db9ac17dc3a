package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// OperatorPrefix is the path under which the operations port shows the inside of entities.
const OperatorPrefix = "/api/entities/"

const (
	// operatorSlots bounds the operators' requests under way; each may hold a page of messages.
	operatorSlots = 16
	// operatorPage is how many things a page holds unless the operator says otherwise, and
	// maxOperatorPage what it may hold; it is the limit of the state machine's own pages.
	operatorPage    = 100
	maxOperatorPage = 1_000
	// operatorBytes bounds the bodies of one page.
	operatorBytes = 4 << 20
)

// Shares is what an operator asks of the partitions. Errors wrap those of package fsm or the
// context's.
type Shares interface {
	Propose(ctx context.Context, k fsm.Key, c fsm.Command) (fsm.Outcome, error)
	Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error)
}

// OperatorDeps are the other rooms, as the operators' API needs them.
type OperatorDeps struct {
	Entities Entities
	Shares   Shares
	Replicas Replicas
	Policies *auth.Policies
	// Suspend sets a status of an entity that its users cannot lift; Active lifts it (S-256).
	Suspend func(ctx context.Context, id fsm.EntityID, to fsm.Status) (*fsm.Descriptor, error)
	// Show turns a message into what JSON shows of it; only the front end can read its bytes.
	Show func(*fsm.Delivery) (any, error)
	// Look turns a message into what rules see of it.
	Look func(*fsm.Delivery) (rule.Message, error)
	// Transactions lists those of this node's clients that use an entity, with ended the finished ones
	// too; the front end alone knows them (S-273).
	Transactions func(entity string, ended bool) any
	// Holder names the client, the link and the address of who took a lock, by the id of the request;
	// empty if it was no client of this node. The front end alone knows (S-272).
	Holder         func(by fsm.RequestID) (client, link, remote string)
	Now            func() time.Time // wall clock
	RequestTimeout time.Duration
	Refusals       *refusal.Log
	Log            hclog.Logger
}

// Operator serves the paths behind [OperatorPrefix]. They are locks, histories, sessions and messages of an
// entity, purge and redrive, and the options that stock clients do not know. Every request needs a
// token with the Manage right on the entity, since it shows bodies and removes messages (S-272).
type Operator struct {
	deps  OperatorDeps
	slots chan struct{}
	// A page in an operator's browser can reach the loopback interface: it must not command.
	origins *http.CrossOriginProtection
}

// NewOperator returns the API; it starts nothing.
func NewOperator(deps OperatorDeps) (*Operator, error) {
	if deps.Entities == nil || deps.Shares == nil || deps.Replicas == nil || deps.Policies == nil || deps.Show == nil || deps.Look == nil || deps.Transactions == nil || deps.Holder == nil ||
		deps.Suspend == nil || deps.Now == nil || deps.Refusals == nil || deps.Log == nil || deps.RequestTimeout <= 0 {
		return nil, errors.New("operators' API: a dependency is missing")
	}
	return &Operator{deps: deps, slots: make(chan struct{}, operatorSlots),
		origins: http.NewCrossOriginProtection()}, nil
}

// inspection is one request of an operator.
type inspection struct {
	o      *Operator
	ctx    context.Context
	http   *http.Request
	d      *fsm.Descriptor
	sub    fsm.SubQueue
	path   string // of the entity and its subqueue, as given
	values url.Values
	claim  auth.Claim
	stale  *staleRead // nil: as of now
}

// entity finds the entity by a linearizable read, or with stale=true as this node knows it.
func (q *inspection) entity(name string) (*fsm.Descriptor, error) {
	if q.stale != nil {
		return q.stale.entity(q.o.deps.Replicas, name)
	}
	return q.o.deps.Entities.Get(q.ctx, name)
}

// authorize asks for a token that opens the entity for management.
func (q *inspection) authorize() error {
	token, err := one(q.http, "Authorization")
	if err != nil {
		return err
	}
	if q.claim, err = verify(q.o.deps.Policies, q.http, token, q.o.deps.Now()); err != nil {
		return err
	}
	if !q.claim.Allows(q.path, auth.Manage) {
		return &problem{status: http.StatusUnauthorized, text: "Manage claim is required for this operation."}
	}
	return nil
}

// cutSubQueue takes the suffix of a subqueue off a path.
func cutSubQueue(path string) (string, fsm.SubQueue) {
	for _, sub := range []fsm.SubQueue{fsm.TransferDeadLetter, fsm.DeadLetter} {
		suffix := "/" + sub.String()
		if n := len(path) - len(suffix); n > 0 && strings.EqualFold(path[n:], suffix) {
			return path[:n], sub
		}
	}
	return path, fsm.Main
}

// operatorError is what an operator reads instead of an answer (S-1).
type operatorError struct {
	Error      string    `json:"error"`
	Code       string    `json:"code"`
	TrackingID string    `json:"trackingId"`
	Retriable  bool      `json:"retriable"` // Retry-After says when
	EntityPath string    `json:"entityPath,omitempty"`
	Timestamp  time.Time `json:"timestamp"`
}

func (o *Operator) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := asProblem(err)
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, OperatorPrefix), "/")
	mark := note(o.deps.Refusals, p, r, path[:max(0, strings.LastIndexByte(path, '/'))])
	switch p.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `SharedAccessSignature realm="namespace"`)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, r, p.status, operatorError{Error: p.text, Code: mark.Code.String(), TrackingID: mark.ID,
		Retriable: mark.Code.Retriable(), EntityPath: mark.Entity, Timestamp: mark.At})
}

// cursor is where a list goes on: behind one place of one share. Its text is opaque to clients.
type cursor struct {
	share int
	after string
}

func (c cursor) String() string { return strconv.Itoa(c.share) + "." + c.after }

// cursor reads the place to go on behind; without one it is the beginning.
func (q *inspection) cursor() (cursor, error) {
	text := q.values.Get("cursor")
	if text == "" {
		return cursor{}, nil
	}
	share, after, ok := strings.Cut(text, ".")
	n, err := strconv.Atoi(share)
	if !ok || err != nil || n < 0 || n >= q.shares() {
		return cursor{}, badRequest("The cursor '%s' is none of this entity's.", clip(text))
	}
	return cursor{n, after}, nil
}

// number is the place as a number.
func (c cursor) number() (uint64, error) {
	if c.after == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(c.after, 10, 64)
	if err != nil {
		return 0, badRequest("The cursor '%s' is none of this list's.", clip(c.String()))
	}
	return n, nil
}

// next is the cursor behind a page: in the same share if there is more, else in the next one; "" is
// the end of the list.
func (q *inspection) next(at cursor, after string, more bool) string {
	switch {
	case more:
		return cursor{at.share, after}.String()
	case at.share+1 < q.shares():
		return cursor{at.share + 1, ""}.String()
	}
	return ""
}

func (q *inspection) shares() int { return max(1, len(q.d.Partitions)) }

func (q *inspection) key(share int) fsm.Key {
	return fsm.Key{Entity: q.d.ID, Sub: q.sub, By: fsm.ByShare, Share: uint16(share)}
}

func (q *inspection) query(share int, ask fsm.Query) (a fsm.Answer, err error) {
	if q.stale != nil {
		a, err = q.stale.query(q, share, ask)
	} else {
		a, err = q.o.deps.Shares.Query(q.ctx, q.key(share), ask)
	}
	if err == nil && a.Refusal != fsm.None {
		err = refusedAs(a.Refusal, a.Detail)
	}
	return a, err
}

func (q *inspection) propose(share int, c fsm.Command) (fsm.Outcome, error) {
	out, err := q.o.deps.Shares.Propose(q.ctx, q.key(share), c)
	if err == nil && out.Refusal != fsm.None {
		err = refusedAs(out.Refusal, out.Detail)
	}
	return out, err
}

// refusedAs gives a refusal of a partition the words of this API.
func refusedAs(why fsm.Refusal, detail string) error {
	if detail != "" {
		detail = ": " + detail
	}
	switch why {
	case fsm.EntityDisabled:
		return &problem{status: http.StatusConflict, text: "The entity is disabled" + detail + "."}
	case fsm.SessionNotSupported:
		return &problem{status: http.StatusBadRequest, text: "The entity has no sessions" + detail + "."}
	case fsm.SessionCannotBeLocked, fsm.SessionLockLost:
		return &problem{status: http.StatusConflict, text: "The session is held by a receiver" + detail + "."}
	}
	return &fsm.RefusedError{Refusal: why, Detail: strings.TrimPrefix(detail, ": ")}
}

// number reads a parameter, within bounds.
func (q *inspection) number(name string, absent, least, most uint64) (uint64, error) {
	text := q.values.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s must be a number from %d to %d, not '%s'.", name, least, most, clip(text))
	}
	return n, nil
}

// time reads a moment: RFC 3339, or milliseconds since 1970.
func (q *inspection) time(name string, absent fsm.Wall) (fsm.Wall, error) {
	text := q.values.Get(name)
	if text == "" {
		return absent, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return fsm.Wall(n), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UnixMilli() <= 0 {
		return 0, badRequest("%s must be a time like 2026-01-31T12:00:00Z or milliseconds since 1970, not '%s'.",
			name, clip(text))
	}
	return fsm.Wall(t.UnixMilli()), nil
}

// only refuses parameters that the view does not know: a filter with a typing error in its name must
// not purge everything.
func (q *inspection) only(names ...string) error {
	for name, values := range q.values {
		switch {
		case !slices.Contains(names, name):
			return badRequest("There is no parameter '%s' here; known are %s.", clip(name), strings.Join(names, ", "))
		case len(values) > 1:
			return badRequest("The parameter %s is given more than once.", name)
		}
	}
	return nil
}

func (q *inspection) page() (uint32, error) {
	n, err := q.number("max", operatorPage, 1, maxOperatorPage)
	return uint32(n), err
}
