package partition

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Supervise begins to keep the groups of a node whole, and to forward their messages. The mesh must serve by now.
func Supervise(h *Host, d *Directory, cfg control.Config) (*control.Supervisor, error) {
	s, err := newSupervisor(h, d, cfg)
	if err != nil {
		return nil, err
	}
	move := &forwarders{sup: s, dir: d, movers: map[fsm.PartitionID]*mover{}, scanned: map[fsm.PartitionID]scanned{}}
	home := &rehomer{sup: s, dir: d, running: map[fsm.EntityID]context.CancelFunc{}}
	if err := s.Start(control.Loop{Name: "forward", Step: move.step, End: move.end},
		control.Loop{Name: "rehome", Step: home.step}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func newSupervisor(h *Host, d *Directory, cfg control.Config) (*control.Supervisor, error) {
	t := control.Timing{HeartbeatTimeout: h.cfg.HeartbeatTimeout, ElectionTimeout: h.cfg.ElectionTimeout,
		StuckAfter: h.cfg.StuckAfter, RepairAfter: h.cfg.RepairAfter, ReplaceAfter: h.cfg.ReplaceAfter,
		CloseTimeout: h.cfg.CloseTimeout}
	return control.New(cfg, t, controlSide{h, d}, h.deps.Log.Named("supervisor"))
}

// controlSide is a host as the loops see it that keep its groups whole.
type controlSide struct {
	h *Host
	d *Directory
}

var _ control.Host = controlSide{}

// Node implements control.Host.
func (c controlSide) Node() fsm.NodeID { return c.h.cfg.Node }

// WrongClock implements control.Host.
func (c controlSide) WrongClock() bool { return c.h.Clock().Wrong }

// Replica implements control.Host.
func (c controlSide) Replica(p fsm.PartitionID) *replica.Replica { return c.h.Replica(p) }

// Replicas implements control.Host.
func (c controlSide) Replicas() []*replica.Replica { return c.h.list() }

// LeadersChanged implements control.Host.
func (c controlSide) LeadersChanged() <-chan struct{} { return c.h.Changed() }

// CatalogChanged implements control.Host.
func (c controlSide) CatalogChanged() <-chan struct{} { return c.h.CatalogChanged() }

// Looks implements control.Host.
func (c controlSide) Looks() <-chan struct{} { return c.h.beats.looks.wait() }

// View implements control.Host.
func (c controlSide) View() *catalog.View { return c.d.View() }

// CurrentView implements control.Host.
func (c controlSide) CurrentView(ctx context.Context) (*catalog.View, error) {
	if err := c.d.catchUp(ctx); err != nil {
		return nil, err
	}
	return c.d.View(), nil
}

// Life implements control.Host.
func (c controlSide) Life() (fsm.Incarnation, <-chan struct{}) {
	changed := c.h.life.changed.wait() // before looking, then nothing is missed
	return c.h.life.now(), changed
}

// Held implements control.Host.
func (c controlSide) Held() map[fsm.PartitionID]bool {
	held := map[fsm.PartitionID]bool{}
	if c.h.deps.Held == nil {
		return held
	}
	all, err := c.h.deps.Held()
	if err != nil {
		c.h.deps.Log.Error("list the partitions that have data here", "error", err)
	}
	for _, p := range all {
		held[p] = true
	}
	return held
}

// Open implements control.Host.
func (c controlSide) Open(p fsm.PartitionID, founders []fsm.NodeID) error {
	return c.h.Open(p, founders)
}

// Rebuilds implements control.Host.
func (c controlSide) Rebuilds() bool { return c.h.deps.Rebuild != nil }

// LifeRefused implements control.Host.
func (c controlSide) LifeRefused(i fsm.Incarnation) { c.h.life.refused(i) }

// SendClientsAway implements control.Host.
func (c controlSide) SendClientsAway(ctx context.Context, wish fsm.Wall) {
	c.h.clients.sendAway(ctx, wish, c.h.deps.Log)
}

// TakeClientsBack implements control.Host.
func (c controlSide) TakeClientsBack() { c.h.clients.takeBack() }

// Change implements control.Host.
func (c controlSide) Change(ctx context.Context, change *catalog.Change) error {
	_, err := c.d.change(ctx, change)
	return err
}

// Knows implements control.Host.
func (c controlSide) Knows() fsm.Version { return c.h.cfg.Knows }

// AdmitVersion implements control.Host.
func (c controlSide) AdmitVersion(ctx context.Context, nodes []fsm.NodeID, to fsm.Version) error {
	return c.h.AdmitVersion(ctx, nodes, to)
}

// Diverge implements control.Host.
func (c controlSide) Diverge(r *replica.Replica, own replica.Digest, agreed string) {
	c.h.diverge(r, own, agreed)
}

// HandOver implements control.Host.
func (c controlSide) HandOver(ctx context.Context, p fsm.PartitionID) error {
	return c.h.TransferLeadership(ctx, p, "")
}

// RightTarget implements control.Host.
func (c controlSide) RightTarget(ctx context.Context, r *replica.Replica, not func(fsm.NodeID) bool) fsm.NodeID {
	return c.h.rightTarget(ctx, r, not)
}

// Retire implements control.Host.
func (c controlSide) Retire(ctx context.Context, p fsm.PartitionID, leader fsm.NodeID) error {
	return c.h.retire(ctx, c.d, p, leader)
}

// Ask implements control.Host.
func (c controlSide) Ask(ctx context.Context, n fsm.NodeID) ([]replica.Status, error) {
	return c.h.Ask(ctx, n)
}

// Rebuild implements control.Host.
func (c controlSide) Rebuild(ctx context.Context, n fsm.NodeID, p fsm.PartitionID, index uint64) error {
	return askRebuild(ctx, c.h.deps.Caller, n, p, index)
}

// Reopen implements control.Host.
func (c controlSide) Reopen(ctx context.Context, n fsm.NodeID, p fsm.PartitionID, giveUp bool) error {
	return askReopen(ctx, c.h.deps.Caller, n, p, giveUp)
}

// Quarantine implements control.Host.
func (c controlSide) Quarantine(ctx context.Context, n fsm.NodeID, p fsm.PartitionID, index uint64, agreed string) error {
	return askQuarantine(ctx, c.h.deps.Caller, n, p, index, agreed)
}
