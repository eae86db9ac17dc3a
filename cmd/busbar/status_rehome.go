package main

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/rest"
)

// Rehome implements rest.Cluster.
func (s *status) Rehome(ctx context.Context, entity string, to fsm.PartitionID, dryRun bool) ([]rest.ShareMove, error) {
	d, err := s.n.directory.Get(ctx, entity)
	if err != nil {
		return nil, err
	}
	moves, err := s.n.directory.Rehome(ctx, d.Name, to, dryRun)
	out := make([]rest.ShareMove, len(moves))
	for i, m := range moves {
		out[i] = rest.ShareMove{Share: m.Share, From: d.Partitions[m.Share], To: m.To}
	}
	return out, err
}
