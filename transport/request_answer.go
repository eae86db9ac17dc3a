package transport

import (
	"strings"

	"github.com/busbar-mq/busbar/transport/refusal"
)

// answer sends a response over the link that the request asks for.
func (r *requests) answer(q *request, a response) {
	r.c.onLoop()
	var mark *refusal.Mark
	if a.problem != nil && a.code >= codeBadRequest { // a list without entries has words, too
		path := r.l.addr.path()
		if r.l.addr.cbs {
			path = parseAddress(q.prop("name")).path()
		}
		if a.event != nil {
			a.problem, mark = r.c.mark(a.problem, path)
		} else {
			a.problem, mark = r.c.note(a.problem, path)
		}
	}
	if a.event != nil {
		r.c.audited(a.event, mark)
	}
	to := r.c.replyLink(r.l, q)
	if to == nil {
		r.c.s.stats.reject(siteReply)
		r.c.log.Debug("no link for a reply", "address", r.l.addr.path(), "reply_to", q.replyTo)
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
