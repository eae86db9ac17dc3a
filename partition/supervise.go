package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// SupervisorConfig says what this node brings into the cluster.
type SupervisorConfig struct {
	// Name is the node's name for people.
	Name string
	// Bootstrap are the nodes that group 0 is created with (A20), the same list on each of them;
	// empty on a node that joins a cluster, which waits to be added.
	Bootstrap []fsm.NodeID
	// Partitions is how many data partitions the first placement makes, Replicas how many replicas
	// each of them has (A1, A3).
	Partitions int
	Replicas   int
	// CatalogVoters is how many nodes vote in group 0; the others hold it without a vote (A2).
	CatalogVoters int
	// Place chooses the replicas of new partitions; the first of each is its preferred leader.
	Place func(
		nodes []fsm.NodeID, partitions []fsm.PartitionID, replicas int,
	) map[fsm.PartitionID][]fsm.NodeID
}

// SupervisorDefaults returns the configuration without a name and a placement.
func SupervisorDefaults() SupervisorConfig {
	return SupervisorConfig{Partitions: 6, Replicas: 3, CatalogVoters: 3}
}

// Validate reports every problem of c.
func (c *SupervisorConfig) Validate() error {
	var errs []error
	if c.Partitions < 1 || c.Partitions >= 1<<15 {
		errs = append(errs, fmt.Errorf("%d partitions are not 1 to 32767", c.Partitions))
	}
	if c.Replicas < 1 {
		errs = append(errs, fmt.Errorf("%d replicas are less than one", c.Replicas))
	}
	if c.CatalogVoters < 1 {
		errs = append(errs, fmt.Errorf("%d catalog voters are less than one", c.CatalogVoters))
	}
	if c.Place == nil {
		errs = append(errs, errors.New("no placement function"))
	}
	return errors.Join(errs...)
}

// Supervisor opens the partitions that the catalog places on this node, and on the catalog's leader
// places the first ones and adds nodes that join.
type Supervisor struct {
	cfg    SupervisorConfig
	host   *Host
	dir    *Directory
	rec    reconciler
	repair repairer
	move   forwarders
	log    hclog.Logger

	ctx    context.Context // of its goroutines, which Close ends
	cancel context.CancelFunc
	wg     sync.WaitGroup
	retry  map[fsm.PartitionID]time.Time // not to be opened before
}

// Supervise opens group 0 and begins to supervise. The mesh must serve by now.
func Supervise(h *Host, d *Directory, cfg SupervisorConfig) (*Supervisor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("supervisor config: %w", err)
	}
	s := &Supervisor{
		cfg: cfg, host: h, dir: d, log: h.deps.Log.Named("supervisor"),
		rec:   reconciler{host: h, done: map[fsm.PartitionID]reconciled{}},
		retry: map[fsm.PartitionID]time.Time{},
	}
	s.repair = repairer{s: s, since: map[memberOf]time.Time{}, silent: map[fsm.NodeID]time.Time{},
		follows: map[memberOf]*follow{}, busy: map[fsm.PartitionID]bool{}, pause: map[fsm.PartitionID]time.Time{},
		rebuilt: map[memberOf]uint64{}}
	s.move = forwarders{s: s, movers: map[fsm.PartitionID]*mover{}, scanned: map[fsm.PartitionID]scanned{}}
	if err := h.Open(fsm.CatalogPartition, cfg.Bootstrap); err != nil {
		if h.deps.Rebuild == nil || errors.Is(err, fsm.ErrClosed) {
			return nil, err
		}
		// The catalog's leader has it rebuilt. Replicas that the catalog places here later open then.
		s.log.Error("open the catalog", "error", err, "mend", replica.RepairText)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hasten(catalog.Group{ID: fsm.CatalogPartition, Members: cfg.Bootstrap})
	for _, loop := range []func(){s.register, s.openPlaced, s.reconcile, s.lead, s.balance, s.heal, s.forward} {
		s.wg.Add(1)
		go func() { defer s.wg.Done(); loop() }()
	}
	return s, nil
}

// Close ends supervision; the replicas stay open.
func (s *Supervisor) Close() {
	s.cancel()
	s.wg.Wait()
}

const (
	// lookEvery is how often the supervisor looks although it heard of no change.
	lookEvery = time.Second
	// registerTimeout bounds one attempt to register.
	registerTimeout = 10 * time.Second
	// openPause is the pause after a partition could not be opened.
	openPause = 5 * time.Second
)

// each calls look now, whenever the catalog here or a leader changes, and now and then.
func (s *Supervisor) each(look func(v *catalog.View)) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		catalog, leaders := s.host.CatalogChanged(), s.host.Changed()
		if v := s.dir.View(); v != nil {
			look(v)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-catalog:
		case <-leaders:
		case <-t.C:
		}
	}
}

// register makes each life of the node known to the cluster.
func (s *Supervisor) register() {
	for s.ctx.Err() == nil {
		changed := s.host.life.changed.wait()
		n := catalog.Node{ID: s.host.cfg.Node, Name: s.cfg.Name, Incarnation: s.host.life.now()}
		ctx, cancel := context.WithTimeout(s.ctx, registerTimeout)
		_, err := s.dir.change(ctx, &catalog.Change{Node: &n, Before: s.before()})
		cancel()
		var refused *fsm.RefusedError
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Refusal == fsm.Stale: // the catalog here is behind
			select {
			case <-s.ctx.Done():
			case <-time.After(lookEvery):
			}
			continue
		case errors.As(err, &refused):
			s.log.Error("this life of the node is not accepted", "error", err)
			if refused.Refusal == fsm.NodeExpired {
				s.host.life.refused(n.Incarnation)
			}
		default:
			s.log.Info("not registered yet", "error", err)
			continue
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
		}
	}
}

// before is the life of the node that the catalog knows of. A registration that was under way when its life
// ended, and comes when the next one is registered, must not take that one's place.
func (s *Supervisor) before() *fsm.Incarnation {
	var before fsm.Incarnation
	if v := s.dir.View(); v != nil {
		n, _ := v.Node(s.host.cfg.Node)
		before = n.Incarnation
	}
	return &before
}

// openPlaced opens what the committed catalog places here, and nothing else (A20).
func (s *Supervisor) openPlaced() {
	s.each(func(v *catalog.View) {
		for _, g := range v.Groups() {
			if !slices.Contains(g.Members, s.host.cfg.Node) || s.host.Replica(g.ID) != nil ||
				time.Now().Before(s.retry[g.ID]) {
				continue
			}
			// A replica that was placed later finds a group that exists, or will: it must not found another one.
			var founders []fsm.NodeID
			if slices.Contains(g.Founders, s.host.cfg.Node) {
				founders = g.Founders
			}
			if err := s.host.Open(g.ID, founders); err != nil {
				s.retry[g.ID] = time.Now().Add(openPause)
				if s.ctx.Err() == nil {
					s.log.Error("open a placed partition", "partition", uint16(g.ID), "error", err,
						"mend", replica.RepairText)
				}
				continue
			}
			s.hasten(g)
		}
	})
}

func (s *Supervisor) reconcile() {
	s.each(func(v *catalog.View) { s.rec.look(s.ctx, v) })
}

func (s *Supervisor) forward() {
	s.each(s.move.look)
	for _, m := range s.move.movers { // order-free: each ends for itself
		m.end() // while this goroutine is counted: nothing begins behind Close's back
	}
}

func (s *Supervisor) heal() { s.each(s.repair.look) }

func (s *Supervisor) balance() {
	b := balancer{host: s.host, seen: map[fsm.PartitionID]leading{}}
	s.each(func(v *catalog.View) { b.look(s.ctx, v) })
}

// lead does what only the catalog's leader does.
func (s *Supervisor) lead() {
	s.each(func(v *catalog.View) {
		r := s.host.Replica(fsm.CatalogPartition)
		if r == nil || !r.Leading() {
			return
		}
		if err := s.place(v); err != nil && s.ctx.Err() == nil {
			s.log.Info("first placement is not committed yet", "error", err)
		}
		if err := s.admit(r, v); err != nil && s.ctx.Err() == nil {
			s.log.Info("membership of the catalog is not changed yet", "error", err)
		}
	})
}

// place proposes the first placement. The catalog leaves partitions that exist alone, so two
// leaders may both do so.
func (s *Supervisor) place(v *catalog.View) error {
	if len(v.Groups()) > 0 || len(s.cfg.Bootstrap) == 0 {
		return nil
	}
	ids := make([]fsm.PartitionID, s.cfg.Partitions)
	for i := range ids {
		ids[i] = fsm.PartitionID(i + 1)
	}
	placed := s.cfg.Place(s.cfg.Bootstrap, ids, min(s.cfg.Replicas, len(s.cfg.Bootstrap)))
	p := &catalog.Placement{}
	for _, id := range ids {
		if len(placed[id]) == 0 {
			return fmt.Errorf("placement names no node for partition %d", id)
		}
		p.Groups = append(p.Groups, catalog.Group{ID: id, Members: placed[id]})
	}
	ctx, cancel := context.WithTimeout(s.ctx, registerTimeout)
	defer cancel()
	_, err := s.dir.change(ctx, &catalog.Change{Place: p})
	return err
}

// admitTimeout bounds one change of membership.
const admitTimeout = 10 * time.Second

// caughtUp is how many entries a node may be behind to be given a vote.
const caughtUp = 64

// admit adds registered nodes to group 0, one change at a time. Each comes without a vote first, because a voter
// counts before it has anything.
func (s *Supervisor) admit(r *replica.Replica, v *catalog.View) error {
	in := map[fsm.NodeID]raft.ServerSuffrage{}
	voters := 0
	for _, m := range r.Servers() {
		in[fsm.NodeID(m.ID)] = m.Suffrage
		if m.Suffrage == raft.Voter {
			voters++
		}
	}
	for _, n := range v.Nodes() {
		if _, ok := in[n.ID]; !ok && s.mayJoin(n.ID) {
			s.log.Info("node joins the catalog", "node", n.ID, "name", n.Name)
			return s.wait(r.AddNonvoter(n.ID, 0))
		}
	}
	if voters >= s.cfg.CatalogVoters {
		return nil
	}
	for _, n := range v.Nodes() {
		if in[n.ID] != raft.Voter && s.isCaughtUp(r, n.ID) {
			s.log.Info("node votes in the catalog", "node", n.ID, "name", n.Name)
			return s.wait(r.AddVoter(n.ID, 0))
		}
	}
	return nil
}

// mayJoin reports whether a node has a replica of the catalog that can be taken in: one that has
// failed is rebuilt first (repairer).
func (s *Supervisor) mayJoin(n fsm.NodeID) bool {
	ctx, cancel := context.WithTimeout(s.ctx, targetTimeout)
	defer cancel()
	all, err := askStatus(ctx, s.host.deps.Caller, n)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(st replica.Status) bool {
		return st.Partition == fsm.CatalogPartition && !st.Broken
	})
}

func (s *Supervisor) isCaughtUp(r *replica.Replica, n fsm.NodeID) bool {
	ctx, cancel := context.WithTimeout(s.ctx, targetTimeout)
	defer cancel()
	all, err := askStatus(ctx, s.host.deps.Caller, n)
	if err != nil {
		return false
	}
	for _, st := range all {
		if st.Partition == r.ID() {
			return st.Failure == "" && st.Applied+caughtUp >= r.Applied()
		}
	}
	return false
}

func (s *Supervisor) wait(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
