package partition

import "github.com/busbar-mq/busbar/fsm"

// OnForwarded has f called for each message that this node has forwarded, or that the destination has refused. A leader that
// takes over may tell of a message again. f must not block. It is called before the node serves.
func (r *Router) OnForwarded(f func(*Forwarded)) { r.send.forwarded.Store(&f) }

// tell calls the one who asked for forwarded messages, if any.
func (f *forwarder) tell(to fsm.EntityID, it *item, refusal fsm.Refusal) {
	if told := f.dir.send.forwarded.Load(); told != nil {
		(*told)(&Forwarded{From: f.src.entity, To: to, Sub: f.src.sub, Number: it.move.Number, Body: it.msg.Body, Refusal: refusal,
			Taken: it.taken})
	}
}
