package main

import (
	"context"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport/rest"
)

// Upgrade describes the cluster version, the programs of the nodes, and what may be done.
func (s *status) Upgrade(ctx context.Context) rest.UpgradeStatus {
	all := s.n.directory.Programs(ctx)
	has, next := s.catalog().ClusterVersion(), fsm.NewestVersion
	out := rest.UpgradeStatus{Version: has.String(), Knows: fsm.NewestVersion.String(), Nodes: []rest.NodeProgram{}}
	names := s.names()
	for _, p := range all {
		row := rest.NodeProgram{ID: names[p.ID], UUID: p.ID, Program: p.Release, Knows: p.Knows.String()}
		if p.Err != nil {
			row.Knows, row.Problem = "", silence(p.Err, p.ID)
		} else {
			next = min(next, p.Knows)
		}
		out.Nodes = append(out.Nodes, row)
	}
	switch {
	case has >= fsm.NewestVersion:
	case next <= has:
		out.Waits = partition.Behind(all, fsm.NewestVersion)
	default:
		out.Next, out.Waits = next.String(), partition.Behind(all, next)
	}
	return out
}

// Finalize raises the cluster version.
func (s *status) Finalize(ctx context.Context) (rest.UpgradeStatus, error) {
	if _, err := s.n.directory.Finalize(ctx); err != nil {
		return rest.UpgradeStatus{}, fmt.Errorf("finalize: %w", err)
	}
	return s.Upgrade(ctx), nil
}
