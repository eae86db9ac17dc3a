package control

import (
	"context"
	"errors"
	"sync"
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
	r.awaitName(ctx)
	for ctx.Err() == nil {
		life, changed := s.host.Life()
		n := catalog.Node{ID: s.host.Node(), Name: s.cfg.Name, Incarnation: life, Zone: r.zone()}
		limit, cancel := context.WithTimeout(ctx, registerTimeout)
		err := s.host.Change(limit, &catalog.Change{Node: &n, Before: r.before(),
			Program: s.host.Knows()})
		cancel()
		var refused *fsm.RefusedError
		switch {
		case err == nil:
		case errors.Is(err, fsm.ErrVersion),
			errors.As(err, &refused) && refused.Refusal == fsm.Stale: // the catalog here is behind
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
		r.rest(ctx, changed, n.Zone)
	}
}

// zone returns the zone to register with: "" while a node of the cluster does not know zones.
func (r registrar) zone() string {
	if v := r.s.host.View(); v == nil || v.ClusterVersion() < fsm.VersionPlacement {
		return ""
	}
	return r.s.cfg.Zone
}

// rest waits until the life that was registered is over, or until the catalog may be told of the zone that it was
// registered without.
func (r registrar) rest(ctx context.Context, changed <-chan struct{}, told string) {
	for {
		news := r.s.host.CatalogChanged() // before looking, then nothing is missed
		if r.zone() != told {
			return
		}
		if told == r.s.cfg.Zone {
			news = nil
		}
		select {
		case <-changed:
			return
		case <-ctx.Done():
			return
		case <-news:
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

const (
	// nameEvery is how often a node asks whether its name is free.
	nameEvery = 5 * time.Second
	// nameRests is how long the owner of a name that was taken must be silent for the name to be free. A restart takes less.
	nameRests = time.Minute
	// nameAsks is how many nodes are asked at a time.
	nameAsks = 8
)

// awaitName waits until no other node answers under the name of this one. A node that the catalog knows keeps its name,
// and founders have not met yet. The name of a node that is gone is free, because the new one may be the same machine
// with a new disk.
func (r registrar) awaitName(ctx context.Context) {
	s := r.s
	if s.cfg.Peers == nil || s.cfg.Name == "" || len(s.cfg.Bootstrap) > 0 {
		return
	}
	told, heard := fsm.NodeID(""), time.Time{}
	for ctx.Err() == nil {
		if v := s.host.View(); v != nil {
			if _, known := v.Node(s.host.Node()); known {
				break
			}
		}
		owner := r.owner(ctx)
		if owner == "" && (told == "" || time.Since(heard) >= nameRests) {
			break
		}
		if owner != "" {
			heard = time.Now()
		}
		if owner != "" && owner != told {
			s.log.Error("another node has the name of this one, which is therefore not taken into the cluster; give it "+
				"another node-id, or stop the other one", "name", s.cfg.Name, "owner", owner)
			told = owner
			r.tell(owner)
		}
		select {
		case <-ctx.Done():
		case <-time.After(nameEvery):
		}
	}
	if told != "" {
		s.log.Info("the name of this node is free", "name", s.cfg.Name)
		r.tell("")
	}
}

func (r registrar) tell(owner fsm.NodeID) {
	if r.s.cfg.NameTaken != nil {
		r.s.cfg.NameTaken(owner)
	}
}

// owner returns a node that answers under the name of this one, "" if there is none.
func (r registrar) owner(ctx context.Context) (owner fsm.NodeID) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, nameAsks)
	for _, n := range r.s.cfg.Peers() {
		if n == r.s.host.Node() {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			all, err := r.s.host.Ask(ctx, n)
			if err != nil || len(all) == 0 || all[0].Name != r.s.cfg.Name {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			owner = max(owner, n)
		})
	}
	wg.Wait()
	return owner
}
