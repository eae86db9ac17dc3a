package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
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
	if deps.Entities == nil || deps.Shares == nil || deps.Replicas == nil || deps.Policies == nil || deps.Show == nil || deps.Transactions == nil || deps.Holder == nil ||
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

// views are the last segments of a path, with the method that each takes and what answers.
func viewOf(name string) (method string, run func(*inspection) (any, error)) {
	switch name {
	case "description":
		return http.MethodGet, (*inspection).description
	case "options":
		return http.MethodPatch, (*inspection).options
	case "locks":
		return http.MethodGet, (*inspection).locks
	case "history":
		return http.MethodGet, (*inspection).history
	case "sessions":
		return http.MethodGet, (*inspection).sessions
	case "messages":
		return http.MethodGet, (*inspection).messages
	case "purge":
		return http.MethodPost, (*inspection).purge
	case "redrive":
		return http.MethodPost, (*inspection).redrive
	case "move":
		return http.MethodPost, (*inspection).move
	case "suspend":
		return http.MethodPost, (*inspection).suspend
	case "resume":
		return http.MethodPost, (*inspection).resume
	case "release-locks":
		return http.MethodPost, (*inspection).releaseLocks
	case "release-session":
		return http.MethodPost, (*inspection).releaseSession
	case "transactions":
		return http.MethodGet, (*inspection).transactions
	}
	return "", nil
}

const viewNames = "description, options, locks, history, sessions, messages, transactions, purge, redrive, move, suspend, resume, release-locks or release-session"

// ServeHTTP implements [http.Handler].
func (o *Operator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case o.slots <- struct{}{}:
		defer func() { <-o.slots }()
	default:
		o.fail(w, r, busy("too many requests of operators at a time"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), o.deps.RequestTimeout)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	value, err := o.serve(ctx, r, w.Header())
	if err != nil {
		o.fail(w, r, err)
		return
	}
	writeJSON(w, r, http.StatusOK, value)
}

// serve checks a request in the order that tells a stranger least: token, entity, then the rest.
func (o *Operator) serve(ctx context.Context, r *http.Request, h http.Header) (any, error) {
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, OperatorPrefix), "/")
	at := strings.LastIndexByte(path, '/')
	method, run := viewOf(path[at+1:])
	if at < 0 || run == nil {
		return nil, &problem{status: http.StatusNotFound, text: "The path must end in " + viewNames}
	}
	if err := o.origins.Check(r); err != nil {
		return nil, &problem{status: http.StatusForbidden, text: "The request comes from another site.", cause: err}
	}
	q := &inspection{o: o, ctx: ctx, http: r, path: path[:at]}
	if err := q.authorize(); err != nil {
		return nil, err
	}
	if r.Method != method && !(method == http.MethodGet && r.Method == http.MethodHead) {
		return nil, &problem{status: http.StatusMethodNotAllowed, text: path[at+1:] + " takes " + method + "."}
	}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, badRequest("The query cannot be decoded: %v.", err)
	}
	name := q.path
	name, q.sub = cutSubQueue(name)
	if staleView(path[at+1:]) {
		if q.stale, err = q.staleness(); err != nil {
			return nil, err
		}
	}
	if q.d, err = q.entity(name); err != nil {
		if errors.Is(err, fsm.ErrNoEntity) {
			return nil, &problem{status: http.StatusNotFound, text: fmt.Sprintf("There is no entity %q.", clip(name))}
		}
		return nil, err
	}
	value, err := run(q)
	if err == nil && q.stale != nil {
		q.stale.tell(value, h)
	}
	return value, err
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
	if q.claim, err = q.o.deps.Policies.Verify(token, q.o.deps.Now()); err != nil {
		return unauthorized(err)
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
