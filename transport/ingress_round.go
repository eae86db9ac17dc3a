package transport

import (
	"context"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// round is what storing needs to know of a link, off the loop.
type round struct {
	s    *Server
	desc *fsm.Descriptor
	via  *fsm.Descriptor // through whose transfer queue the messages go, nil if straight
	path string
	key  string // of the client that sends, for its rate
}

// translate makes messages of deliveries and returns those that are good.
func (r *round) translate(ds []*inbound) []*inbound {
	good := make([]*inbound, 0, len(ds))
	ids := messageIDs{s: r.s, of: len(ds)}
	for _, d := range ds {
		if d.translated {
			if d.refusal == nil {
				good = append(good, d)
			}
			continue
		}
		d.via, d.translated = r.via, true
		if err := translateInbound(d, r.desc, &ids); err != nil {
			r.s.stats.reject(siteMessage)
			d.refusal = err
			continue
		}
		if err := r.s.rates.take(r.key, len(d.messages), d.bytes); err != nil {
			r.s.stats.reject(siteKeyRate)
			d.refusal, d.messages, d.payload = err, nil, nil
			continue
		}
		if d.format != amqp.FormatBatch {
			d.payload = nil // the messages have copies, or its memory
		}
		d.traces = r.s.cfg.tracesOf(d.messages)
		good = append(good, d)
	}
	return good
}

// command returns what stores deliveries of one share, which late ones may join; late is nil if none may.
func (r *round) command(ds []*inbound, late *lateDeliveries) (fsm.Key, fsm.Command) {
	messages := ds[0].messages
	if len(ds) > 1 {
		n := 0
		for _, d := range ds {
			n += len(d.messages)
		}
		messages = make([]fsm.Message, 0, n)
		for _, d := range ds {
			messages = append(messages, d.messages...)
		}
	}
	key := fsm.Key{Entity: r.desc.ID, By: fsm.ByAny}
	if ds[0].byText {
		key.By, key.Text = fsm.ByText, ds[0].text
	}
	if r.via != nil {
		key.Entity = r.via.ID
		return key, &fsm.Transfer{To: r.desc.ID, Messages: messages}
	}
	send := &fsm.Enqueue{Messages: messages}
	if late != nil {
		send.Late = late
	}
	return key, send
}

// store stores deliveries of one share and calls over on the loop. No goroutine waits for that if the broker can do without. The
// deliveries must be translated.
func (p *pump) store(r *round, ds []*inbound, late *lateDeliveries, over func()) {
	if len(ds) == 0 {
		over()
		return
	}
	key, cmd := r.command(ds, late)
	proposed := r.s.cfg.traceTime()
	if p.begin(p.c.cfg.ProposeTimeout, key, cmd, func(out fsm.Outcome, err error) {
		if ds = r.answered(ds, late, proposed); !severally(ds, out, err) {
			r.judge(ds, out, err)
			over()
			return
		}
		p.run(func() func() {
			r.storeEach(&p.numbers, p.c, ds)
			return over
		})
	}) {
		return
	}
	p.run(func() func() {
		r.storeAll(&p.numbers, p.c, ds, late)
		return over
	})
}

// storeAll proposes deliveries of one share and waits. Its parameters are those of propose.
func (r *round) storeAll(pump *waist.Pump, c *conn, ds []*inbound, late *lateDeliveries) {
	if len(ds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ProposeTimeout)
	defer cancel()
	r.propose(ctx, pump, ds, late)
}

// storeEach proposes deliveries one by one and waits.
func (r *round) storeEach(pump *waist.Pump, c *conn, ds []*inbound) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ProposeTimeout)
	defer cancel()
	for i := range ds {
		r.propose(ctx, pump, ds[i:i+1], nil)
	}
}

// propose proposes deliveries of one share as one command, which late ones may join; late is nil if none may. A refusal of several
// says nothing about each, so then they are asked one by one.
func (r *round) propose(ctx context.Context, pump *waist.Pump, ds []*inbound, late *lateDeliveries) {
	key, cmd := r.command(ds, late)
	proposed := r.s.cfg.traceTime()
	out, err := r.s.waist.Propose(ctx, pump, key, cmd)
	ds = r.answered(ds, late, proposed)
	if !severally(ds, out, err) {
		r.judge(ds, out, err)
		return
	}
	for i := range ds {
		r.propose(ctx, pump, ds[i:i+1], nil)
	}
}

// answered returns the deliveries that an answer is for, with those that have joined.
func (r *round) answered(ds []*inbound, late *lateDeliveries, proposed time.Time) []*inbound {
	joined, _ := late.end()
	if len(joined) > 0 {
		ds = slices.Concat(ds, joined)
	}
	if !proposed.IsZero() {
		for _, d := range ds {
			d.logged(proposed)
		}
	}
	return ds
}

// severally reports whether a refusal of several deliveries says nothing about each, so that they are asked one by one.
func severally(ds []*inbound, out fsm.Outcome, err error) bool {
	return err == nil && out.Refusal != fsm.None && len(ds) > 1
}

// judge notes what became of deliveries.
func (r *round) judge(ds []*inbound, out fsm.Outcome, err error) {
	for _, d := range ds {
		d.payload = nil
		switch {
		case err != nil:
			r.s.stats.reject(siteUnavailable)
			d.refusal, d.gone = r.s.errorOf(err, r.path), waist.IsGone(err)
		case out.Refusal != fsm.None:
			r.s.stats.reject(siteRefused)
			d.refusal = r.s.refusal(out.Refusal, out.Detail, r.path)
			d.gone = out.Refusal == fsm.EntityNotFound
		}
	}
}
