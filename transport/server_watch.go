package transport

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cluster/tick"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// watcher looks up the entities that have open links in the local catalog, when that has changed and now and then. So
// links of a deleted or disabled entity end even if nothing is asked of it (S-254, S-259).
type watcher struct {
	s *Server

	mu       sync.Mutex
	entities map[string]*watched
}

// watched is one entity name with open links.
type watched struct {
	name  string
	desc  *fsm.Descriptor // as last seen
	conns map[*conn]int   // links per connection

	receivers, senders int // links
}

// links returns the count of links that l is one of.
func (e *watched) links(l *link) *int {
	if l.clientSends() {
		return &e.senders
	}
	return &e.receivers
}

// EachLinked calls f with each entity that has open links of clients, and their number.
func (s *Server) EachLinked(f func(id fsm.EntityID, name string, receivers, senders int)) {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	for _, e := range s.watcher.entities {
		if e.desc != nil { // or it was deleted, and its links are about to end
			f(e.desc.ID, e.name, e.receivers, e.senders)
		}
	}
}

// watched reports whether the link ends with its entity. Request links do not: each request finds the
// entity that has the name by then.
func (l *link) watched() bool {
	l.ch.c.onLoop()
	return l.desc != nil && l.end != nil && !l.addr.management
}

func newWatcher(s *Server) *watcher { return &watcher{s: s, entities: map[string]*watched{}} }

// watch counts one more link on an entity.
func (w *watcher) watch(l *link) {
	c, d := l.ch.c, l.desc
	w.mu.Lock()
	defer w.mu.Unlock()
	key := strings.ToLower(d.Name)
	e := w.entities[key]
	if e == nil {
		e = &watched{name: d.Name, desc: d, conns: map[*conn]int{}}
		w.entities[key] = e
	}
	e.conns[c]++
	*e.links(l)++
}

// unwatch counts one less.
func (w *watcher) unwatch(l *link) {
	c, d := l.ch.c, l.desc
	w.mu.Lock()
	defer w.mu.Unlock()
	key := strings.ToLower(d.Name)
	e := w.entities[key]
	if e == nil {
		return
	}
	*e.links(l)--
	if e.conns[c]--; e.conns[c] <= 0 {
		delete(e.conns, c)
	}
	if len(e.conns) == 0 {
		delete(w.entities, key)
	}
}

// stepPause keeps a burst of changes of the catalog from causing a step each.
const stepPause = 10 * time.Millisecond

func (w *watcher) run() {
	t := tick.Every(w.s.cfg.WatchInterval)
	defer t.Stop()
	changes, _ := w.s.catalog.(Changes)
	policies := w.s.policies.Version()
	for due, seen := false, uint64(0); ; {
		if now := w.s.policies.Version(); now != policies {
			policies = now
			w.s.wg.Go(w.s.revoke)
		}
		var changed <-chan struct{}
		version := seen
		if changes != nil { // asked before the step, so that no change is missed
			version, changed = changes.Changed()
		}
		if due || version != seen {
			w.step()
			seen = version
		}
		select {
		case <-t.C:
			t.Next()
			due = true
			w.s.workers.trim()
		case <-changed:
			if due = false; !waist.Sleep(w.s.ctx, stepPause) {
				return
			}
		case <-w.s.ctx.Done():
			return
		}
	}
}

// revoke has every connection look at its claims again: a policy has changed.
func (s *Server) revoke() {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		c.post(c.revokeClaims)
	}
}

// step asks for every entity once and tells the connections what has changed.
func (w *watcher) step() {
	w.mu.Lock()
	names := make([]string, 0, len(w.entities))
	for _, e := range w.entities {
		names = append(names, e.name)
	}
	w.mu.Unlock()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(w.s.ctx, w.s.cfg.ProposeTimeout)
		d, err := w.s.catalog.Entity(ctx, name)
		cancel()
		if err != nil && !waist.IsGone(err) {
			continue // nothing is known; the next step may tell
		}
		for _, c := range w.changed(name, d) {
			c.post(func() { c.entityChanged(name, d) })
		}
	}
}

// changed notes what is known of an entity now, nil if it is gone, and returns whom to tell.
func (w *watcher) changed(name string, d *fsm.Descriptor) []*conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entities[strings.ToLower(name)]
	if e == nil || d != nil && e.desc != nil && d.ID == e.desc.ID && d.Version == e.desc.Version {
		return nil
	}
	e.desc = d
	conns := make([]*conn, 0, len(e.conns))
	for c := range e.conns {
		conns = append(conns, c)
	}
	return conns
}

// entityChanged ends the links that the entity's new description does not allow, and shows it to
// the others. d is nil if the entity is gone.
func (c *conn) entityChanged(name string, d *fsm.Descriptor) {
	for _, l := range c.links {
		if !l.watched() || l.state != linkAttached || !strings.EqualFold(l.desc.Name, name) {
			continue
		}
		l.ch.touch()
		switch {
		case d == nil || d.ID != l.desc.ID:
			c.fault(l.ch, l, linkFault(siteRefused, amqp.ConditionNotFound, "%s", notFoundText(c.s, l.addr.path())))
		case !l.clientSends() && (d.Status == fsm.Disabled || d.Status == fsm.ReceiveDisabled):
			c.fault(l.ch, l, linkFault(siteRefused, amqp.ConditionEntityDisabled, "%s", disabledText(l.addr.path())))
		default:
			if g, ok := l.end.(*ingress); ok && !g.pump.busy {
				l.desc = d // larger or smaller messages, other status
			}
		}
	}
}
