package control

import (
	"context"
	"errors"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// registerTimeout bounds one attempt to register.
const registerTimeout = 10 * time.Second

// registrar makes each life of the node known to the cluster.
type registrar struct{ s *Supervisor }

// run registers each life as it begins.
func (r registrar) run(ctx context.Context) {
	s := r.s
	for ctx.Err() == nil {
		life, changed := s.host.Life()
		n := catalog.Node{ID: s.host.Node(), Name: s.cfg.Name, Incarnation: life}
		limit, cancel := context.WithTimeout(ctx, registerTimeout)
		err := s.host.Change(limit, &catalog.Change{Node: &n, Before: r.before()})
		cancel()
		var refused *fsm.RefusedError
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Refusal == fsm.Stale: // the catalog here is behind
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
			continue
		case errors.As(err, &refused):
			s.log.Error("this life of the node is not accepted", "error", err)
			if refused.Refusal == fsm.NodeExpired {
				s.host.LifeRefused(n.Incarnation)
			}
		default:
			s.log.Info("not registered yet", "error", err)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// before is the life of the node that the catalog knows of. A registration that was under way when its life
// ended, and comes when the next one is registered, must not take that one's place.
func (r registrar) before() *fsm.Incarnation {
	var before fsm.Incarnation
	if v := r.s.host.View(); v != nil {
		n, _ := v.Node(r.s.host.Node())
		before = n.Incarnation
	}
	return &before
}
