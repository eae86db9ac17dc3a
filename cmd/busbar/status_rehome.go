package main

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
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

// rehomings lists the shares that move, and those of which the last move was given up.
func rehomings(v *catalog.View) (out []rest.RehomingStatus) {
	for _, r := range v.Rehomings() {
		row := rest.RehomingStatus{ShareMove: rest.ShareMove{Share: r.Share, From: r.From, To: r.To}, Step: string(r.Step),
			Why: r.Why, Left: len(r.Next), Since: time.UnixMilli(int64(r.Since)).UTC()}
		if d := v.ByID(r.ID); d != nil {
			row.Entity = d.Name
		}
		out = append(out, row)
	}
	return out
}
