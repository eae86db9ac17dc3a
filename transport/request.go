package transport

import (
	"context"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/waist"
)

// The request nodes, $cbs and $management, take requests over one link and answer over another of
// the same connection.

const (
	// requestSlack is what a request may take beyond the messages inside it.
	requestSlack = 64 << 10

	keyOperation   = "operation"
	keyTrackingID  = "com.microsoft:tracking-id"
	keyLinkName    = "associated-link-name" // of a link of the same connection
	codeOK         = 200
	codeAccepted   = 202
	codeNoContent  = 204
	codeBadRequest = 400
)

// requestEndpoint makes the half of a request node that the link's direction asks for.
func (l *link) requestEndpoint() endpoint {
	if l.clientSends() {
		return newRequests(l)
	}
	return newReplies(l)
}

// request is one request, taken apart. Its contents are views of a copy of its own.
type request struct {
	operation string
	id        amqp.Raw // message-id
	replyTo   string
	props     amqp.Raw // application properties
	body      amqp.Raw // the amqp-value, nil if there is none
	bytes     int
	ch        *channel
	txnID     []byte // of the transaction that the request is part of, nil if none
	moves     int    // how often its entity turned out to be a later one of that name
}

// response is what a request node answers.
type response struct {
	code    int
	problem *amqp.Error // on failure
	body    amqp.Raw    // nil: none
	tail    [][]byte    // the rest of body, if that is large: views, which are not copied
	// moved is what the name of the entity stands for now, if nothing was done because the link knew
	// an earlier one of that name; the request is served again.
	moved *fsm.Descriptor
}

func failed(code int, e *amqp.Error) response { return response{code: code, problem: e} }

// requests is the half that takes requests. A request waits in queue, runs, and has its answer wait for the
// link credit of the link that receives it; until the answer is on its way it takes a place of the link credit.
type requests struct {
	intake
	c       *conn
	limit   int // bytes of one request
	queue   []request
	queued  bool // in the connection's list of links whose requests wait for their turn
	running int
	pumps   []*waist.Pump // pumps that are free
	made    int           // pumps that exist
	closing bool
}

func newRequests(l *link) *requests {
	r := &requests{intake: newIntake(l), c: l.ch.c, limit: defaultMessageBytes}
	if l.desc != nil {
		r.limit = int(l.desc.MaxMessageBytes) + requestSlack
	}
	return r
}

func (r *requests) start() { r.open() }

// transfer collects a request. Some clients send them settled and with an empty tag (Q19).
func (r *requests) transfer(p *amqp.Transfer, payload []byte) error {
	if r.now == nil {
		if err := r.begin(p); err != nil {
			return err
		}
	}
	d := r.now
	d.settled = d.settled || p.Settled.Or(false)
	switch s := p.State.(type) {
	case nil:
	case *amqp.TransactionalState:
		d.txnID = append([]byte{}, s.TxnID...)
	default:
		d.badState = true
	}
	if p.Aborted {
		r.abort()
		r.rise()
		return nil
	}
	if err := r.arrive(d, payload); err != nil || p.More {
		return err
	}
	r.abort()
	r.take(d)
	r.rise()
	return nil
}

// arrive adds a frame's payload to a request. An error ends the link: the request is too large, or cannot be
// held and the client would not hear that it was refused.
func (r *requests) arrive(d *inbound, payload []byte) error {
	if d.dropped {
		return nil
	}
	if len(d.payload)+len(payload) > r.limit {
		return linkFault(siteMessageSize, amqp.ConditionMessageSizeExceeded, "a request of more than %d bytes", r.limit)
	}
	busy := r.c.arriving(len(payload), r.limit, "The connection has too many requests under way whose last frame has not come.")
	if busy != nil {
		r.c.s.stats.reject(siteMessageSize)
		r.c.arrivedBytes -= len(d.payload)
		d.payload, d.dropped, d.refusal = nil, true, busy
		if d.settled {
			return linkFault(siteMessageSize, amqp.ConditionServerBusy, "%s", d.refusal.Description)
		}
		return nil
	}
	d.payload = grow(d.payload, payload, r.limit, r.c.cfg.OnLarge)
	r.c.arrivedBytes += len(payload)
	return nil
}

// take has a whole request run in its turn, or refuses it.
func (r *requests) take(d *inbound) {
	var q request
	var err error
	refusal := d.refusal
	if refusal == nil {
		q, err = parseRequest(d.payload)
	}
	switch {
	case refusal != nil:
	case d.badState:
		r.c.s.stats.reject(siteRequest)
		refusal = amqpError(amqp.ConditionNotImplemented, "a request in such a state")
	case err != nil:
		r.c.s.stats.reject(siteRequest)
		refusal = amqpError(amqp.ConditionDecodeError, "%v", err)
	}
	state := amqp.DeliveryState(amqp.Accepted{})
	switch {
	case refusal != nil:
		state = r.c.reject(refusal, r.l.addr.path())
	case d.txnID != nil:
		state = &amqp.TransactionalState{TxnID: d.txnID, Outcome: amqp.Accepted{}}
	}
	if !d.settled {
		r.l.ch.acks = append(r.l.ch.acks, ack{id: d.id, state: state})
		r.l.ch.touch()
	}
	if refusal != nil {
		return
	}
	q.ch, q.bytes, q.txnID = r.l.ch, len(d.payload), d.txnID
	r.c.heldBytes += q.bytes
	r.waiting++
	r.queue = append(r.queue, q)
	r.next()
}

// abort forgets the request that is arriving, if any.
func (r *requests) abort() {
	if r.now != nil {
		r.c.arrivedBytes -= len(r.now.payload)
		r.now = nil
	}
}

// parseRequest takes a request apart.
func parseRequest(payload []byte) (request, error) {
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		return request{}, err
	}
	p, err := s.ParseProperties()
	if err != nil {
		return request{}, err
	}
	q := request{id: p.MessageID, replyTo: string(p.ReplyTo), props: amqp.SectionValue(s.ApplicationProperties)}
	if v, ok := q.props.Get(keyOperation); ok {
		q.operation, _ = v.Text()
	}
	if s.BodyCode == amqp.CodeAMQPValue {
		q.body = amqp.SectionValue(s.Body)
	}
	return q, nil
}

// serve runs one request and answers it.
func (r *requests) serve(q *request, pump *waist.Pump) {
	work := r.work(q, pump)
	r.c.spawn(func() func() {
		answer, then := work()
		return func() {
			if answer.moved != nil {
				r.l.desc = answer.moved
				r.limit = int(r.l.desc.MaxMessageBytes) + requestSlack
				q.moves++
				if then != nil {
					then(answer)
				}
				r.serve(q, pump)
				return
			}
			r.running--
			r.c.running--
			r.c.heldBytes -= q.bytes
			r.pumps = append(r.pumps, pump)
			if then != nil {
				answer = then(answer)
			}
			r.answer(q, answer)
			r.next()
			r.finish()
		}
	})
}

// freePump returns a pump that no request uses.
func (r *requests) freePump() *waist.Pump {
	if n := len(r.pumps); n > 0 {
		p := r.pumps[n-1]
		r.pumps = r.pumps[:n-1]
		return p
	}
	r.made++
	p := r.c.s.waist.NewPump()
	if r.l.desc != nil { // it may fetch deferred messages
		r.c.s.waist.Holders().Begin(p.Number(), r.l.holder())
	}
	return &p
}

// work decides on the loop what a request needs and returns what does it off the loop; then, if
// not nil, runs on the loop again and may replace the answer.
func (r *requests) work(q *request, pump *waist.Pump) func() (response, func(response) response) {
	if r.l.addr.cbs {
		return r.token(q)
	}
	op, ok := operationOf(q.operation)
	if !ok {
		r.c.s.stats.reject(siteRequest)
		return always(failed(501, amqpError(amqp.ConditionNotImplemented,
			"The operation %q is not supported here.", refusal.Clip(q.operation))))
	}
	path := r.l.addr.path()
	if !r.l.allowed(op.right) {
		r.c.s.stats.reject(siteUnauthorized)
		return always(failed(401, amqpError(amqp.ConditionUnauthorizedAccess, "%s",
			unauthorizedText(path, op.right))))
	}
	k := &call{s: r.c.s, desc: r.l.desc, addr: r.l.addr, request: q, pump: pump, emptyIsNull: r.c.goClient}
	if op.right == auth.Send {
		k.sender = r.c.sender(path)
	}
	k.room = maxRulesBytes
	if q.operation == opEnumerateRules {
		if to := r.c.replyLink(r.l, q); to != nil && to.l.asked.MaxMessageSize.Or(0) > 0 {
			k.room = int(min(to.l.asked.MaxMessageSize.Value, maxRulesBytes)) - answerSlack
		}
	}
	k.sessionID, k.hasSession = k.text("session-id")
	if raw, there := q.body.Get("session-id"); there && !raw.IsNull() && !k.hasSession {
		return always(k.badArgument("session-id must be a string"))
	}
	if k.hasSession {
		if h := r.c.sessions[sessionKey{r.l.desc.ID, k.sessionID}]; h != nil && r.l.addr.sub == fsm.Main {
			k.held, k.proof = h, h.proof
		}
	} else if h := r.associated(q); h != nil {
		k.sessionID, k.hasSession = h.key.id, true
		k.held, k.proof = h, h.proof
	}
	if name := q.prop(keyLinkName); k.held != nil && k.held.shared != nil && name != "" && name != k.held.l.name {
		k.held, k.proof = nil, fsm.SessionProof{} // asked by a link from which this one took the session over (S-330)
	}
	if q.txnID != nil {
		if bad := k.enlist(q); bad != nil {
			return always(*bad)
		}
	} else if k.held != nil && k.held.shared != nil && q.operation == opSettle {
		k.settleShared()
	}
	timeout := r.timeout(q)
	return func() (response, func(response) response) {
		ctx, cancel := context.WithTimeout(r.c.ctx, timeout)
		defer cancel()
		answer := k.serve(ctx, op)
		return answer, k.then
	}
}

// associated returns the session that a receiving link of this connection holds, if the request names that link. The
// link must be one of the same entity (RUL-29); nil otherwise.
func (r *requests) associated(q *request) *heldSession {
	name := q.prop(keyLinkName)
	if name == "" || r.l.addr.sub != fsm.Main {
		return nil
	}
	l := r.c.links[linkKey{name, amqp.RoleReceiver}]
	if l == nil || l.state != linkAttached {
		return nil
	}
	e, ok := l.end.(*egress)
	if !ok || e.session == nil || e.session.key.entity != r.l.desc.ID {
		return nil
	}
	return e.session
}

func always(answer response) func() (response, func(response) response) {
	return func() (response, func(response) response) { return answer, nil }
}

// timeout returns how long the client waits for the answer, within our own limit (Q13).
func (r *requests) timeout(q *request) time.Duration {
	for _, key := range []string{"com.microsoft:server-timeout", "server-timeout"} {
		v, ok := q.props.Get(key)
		if !ok {
			continue
		}
		if ms, ok := v.Int64(); ok && ms > 0 {
			return min(time.Duration(min(ms, 1<<32))*time.Millisecond, r.c.cfg.ProposeTimeout)
		}
	}
	return r.c.cfg.ProposeTimeout
}

// close implements endpoint; requests under way are still answered.
func (r *requests) close(bool) {
	r.closing = true
	r.abort()
	r.finish()
}

func (r *requests) busy() bool { return r.running > 0 || len(r.queue) > 0 }

func (r *requests) finish() {
	if !r.closing || r.busy() {
		return
	}
	if r.l.desc != nil {
		for _, p := range r.pumps {
			r.c.s.waist.Holders().End(p.Number())
			for _, share := range waist.AllShares(r.l.desc) {
				r.c.s.waist.Retire(p, waist.ShareKey(r.l.desc, r.l.addr.sub, share))
			}
		}
	}
	r.pumps = nil
	r.l.finish()
}

// answered gives the place of a request back to the link credit: its answer is on its way, or has no way.
func (r *requests) answered() {
	r.waiting--
	r.rise()
}

// answer sends a response over the link that the request asks for.
func (r *requests) answer(q *request, a response) {
	var mark *refusal.Mark
	if a.problem != nil && a.code >= codeBadRequest { // a list without entries has words, too
		path := r.l.addr.path()
		if r.l.addr.cbs {
			path = parseAddress(q.prop("name")).path()
		}
		a.problem, mark = r.c.note(a.problem, path)
	}
	to := r.c.replyLink(r.l, q)
	if to == nil {
		r.c.s.stats.reject(siteReply)
		r.c.log.Debug("no link for a reply", "node", r.l.addr.path(), "reply_to", q.replyTo)
		r.answered()
		return
	}
	payload, err := encodeResponse(q, a, r.l.addr.cbs, mark)
	if err != nil {
		r.c.log.Error("encode response", "operation", q.operation, "error", err)
		r.answered()
		return
	}
	to.add(reply{payload: payload, tail: a.tail, of: r})
}

// replyLink finds the link for a reply by its target address, by its name, or else the one attached last to the same
// node. It takes one of the same channel if there is one (§2.1 and amqp-protocol.md 7.1).
func (c *conn) replyLink(from *link, q *request) *replies {
	var best *replies
	score := 0
	for _, r := range c.replies {
		if r.l.state != linkAttached || r.l.addr.cbs != from.addr.cbs ||
			!strings.EqualFold(r.l.addr.path(), from.addr.path()) {
			continue
		}
		s := 1
		if t := r.l.asked.Target; q.replyTo != "" && t != nil && t.Address.Or("") == q.replyTo {
			s = 5
		} else if q.replyTo != "" && r.l.name == q.replyTo {
			s = 3
		}
		if r.l.ch == q.ch {
			s++
		}
		if s >= score {
			best, score = r, s
		}
	}
	return best
}

// encodeResponse writes a response up to its tail. It has both spellings of its keys (G14) and the request's id in
// the type it came in (G15). mark is nil unless something was refused.
func encodeResponse(q *request, a response, cbs bool, mark *refusal.Mark) ([]byte, error) {
	out := amqp.AppendHeader(nil, amqp.Header{})
	out = amqp.AppendProperties(out, &amqp.Properties{CorrelationID: q.id})
	w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
	description := "OK"
	switch {
	case a.problem != nil:
		description = a.problem.Description
	case a.code == codeAccepted:
		description = "Accepted"
	case a.code == codeNoContent:
		description = "No content"
	}
	w.Int("statusCode", int32(a.code))
	w.Int("status-code", int32(a.code))
	if a.problem != nil {
		w.Symbol("errorCondition", a.problem.Condition)
		if !cbs { // its mere presence means an authentication failure to Python
			w.Symbol("error-condition", a.problem.Condition)
		}
		if mark != nil {
			appendMark(&w, mark)
		}
	}
	w.String("statusDescription", description)
	w.String("status-description", description)
	if id, ok := q.props.Get(keyTrackingID); ok && !cbs {
		w.Raw(keyTrackingID, id)
	}
	out = w.End()
	body := a.body
	if body == nil {
		if a.problem != nil || a.code == codeNoContent {
			return out, nil
		}
		if body = amqp.AppendNull(nil); !cbs {
			m := amqp.BeginMap(nil)
			body = m.End()
		}
	}
	return amqp.AppendValueBody(out, body)
}
