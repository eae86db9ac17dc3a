package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// settleShared prepares for a settlement over $management, which is how clients settle in a shared
// session (S-332). The link forgets the deliveries that it concerns, and asks for no others before a
// message that is given back is there again (S-58).
func (k *call) settleShared() {
	h := k.held
	e, ok := h.l.end.(*egress)
	if !ok {
		return
	}
	status, _ := k.text("disposition-status")
	item, _ := k.verdict(status)
	back := item.Verdict == fsm.Abandon || item.Verdict == fsm.Return
	if back {
		e.returning++
		e.recall(item.Verdict)
	}
	k.then = func(answer response) response {
		h.l.ch.touch()
		if back {
			e.returning--
		}
		if answer.code == codeOK {
			h.l.ch.forgetTokens(e, k)
		}
		e.fetch()
		return answer
	}
}

// forgetTokens takes the deliveries with the lock tokens of a request out of the link's account.
func (ch *channel) forgetTokens(e *egress, k *call) {
	ch.c.onLoop()
	v, _ := k.field("lock-tokens")
	ids, _ := amqp.ToUUIDs(v)
	for _, id := range ids {
		token := fsm.LockToken(id)
		for i := range ch.sent.items {
			if d := &ch.sent.items[i]; d.live && d.owner == e && d.token == token {
				ch.forget(d)
				ch.sent.kill(d)
				break
			}
		}
	}
	ch.sent.tidy()
}
