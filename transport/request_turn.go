package transport

import (
	"github.com/busbar-mq/busbar/transport/amqp"
)

// repliesFull reports that the answers that wait for the client's link credit or for its socket take
// MaxConnBytes; no further request runs until some have gone.
func (c *conn) repliesFull() bool { return c.replyBytes >= c.cfg.MaxConnBytes }

// heldLimit is how many bytes of deliveries and requests may wait before reading stops. While answers wait for
// link credit, reading goes on twice as far, because the client's flow frame may stand behind its requests.
func (c *conn) heldLimit() int {
	if c.repliesFull() {
		return 2 * c.cfg.MaxConnBytes
	}
	return c.cfg.MaxConnBytes
}

// checkReplies ends a connection whose client sends on and on and takes no answers. Neither can be held, and nothing
// but its own flow frame could end the wait.
func (c *conn) checkReplies() {
	if c.phase != phaseOpen || !c.repliesFull() || c.heldBytes < c.heldLimit() {
		return
	}
	c.s.stats.reject(siteReply)
	c.sendClose(amqpError(amqp.ConditionResourceLimitExceeded, "Answers of %d bytes wait for link credit, and requests "+
		"and messages of %d bytes wait behind them. Grant credit on the link that receives the answers.",
		c.replyBytes, c.heldBytes))
}

// next has the requests of a link run in their turn.
func (r *requests) next() {
	r.c.onLoop()
	r.enqueue()
	r.c.runRequests()
}

// enqueue puts the link into the connection's list of links whose requests wait for their turn.
func (r *requests) enqueue() {
	r.c.onLoop()
	if !r.queued && len(r.queue) > 0 && r.running < r.c.cfg.MaxRequests {
		r.queued = true
		r.c.asking = append(r.c.asking, r)
	}
}

// runRequests starts requests of the connection's links in turn, as long as there is room to run them and room
// for their answers.
func (c *conn) runRequests() {
	for len(c.asking) > 0 && c.running < c.cfg.MaxConnRequests && !c.repliesFull() {
		r := c.asking[0]
		c.asking[0] = nil
		c.asking = c.asking[1:]
		r.queued = false
		if len(r.queue) > 0 {
			r.runNext()
			r.enqueue()
		}
	}
	if len(c.asking) == 0 {
		c.asking = nil
	}
}

// runNext starts the request that has waited longest.
func (r *requests) runNext() {
	r.c.onLoop()
	q := r.queue[0]
	r.queue[0] = request{}
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil
	}
	r.running++
	r.c.running++
	r.c.s.stats.Requests.Add(1)
	r.serve(&q, r.freePump())
}
