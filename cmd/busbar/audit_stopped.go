package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/storage"
)

// stoppedNode is one data directory that no process uses.
type stoppedNode struct {
	path string
	dir  *storage.Dir
}

// openStopped opens a data directory that must be there.
func openStopped(path, store string) (stoppedNode, error) {
	if _, err := os.Stat(filepath.Join(path, "identity.json")); err != nil {
		return stoppedNode{}, exit.With(exit.NotFound, fmt.Errorf("%s is no data directory: %w", path, err))
	}
	dir, err := storage.Open(storageConfig(path, store), hclog.NewNullLogger())
	if err != nil {
		return stoppedNode{}, fmt.Errorf("%s: %w (the node must be stopped)", path, err)
	}
	return stoppedNode{path, dir}, nil
}

func (n stoppedNode) has(p fsm.PartitionID) bool {
	ids, err := n.dir.Groups()
	if err != nil {
		return false
	}
	for _, id := range ids {
		if id == uint16(p) {
			return true
		}
	}
	return false
}

// auditStopped audits one partition in every directory that holds it, and compares the states behind the
// last entry that all of them have.
func auditStopped(ctx context.Context, p fsm.PartitionID, nodes []stoppedNode) (g partition.GroupAudit) {
	g = partition.GroupAudit{Partition: p, Replicas: []replica.Audit{}}
	problem := func(path string, err error) {
		if err != nil {
			g.Problems = append(g.Problems, fmt.Sprintf("%s: %v", path, err))
		}
	}
	var stores []replica.Stores
	var held []stoppedNode
	for _, n := range nodes {
		if !n.has(p) {
			continue
		}
		s, err := openStores(n.dir, p)
		if err != nil {
			problem(n.path, err)
			continue
		}
		defer func() { problem(n.path, s.Close()) }()
		stores, held = append(stores, s), append(held, n)
	}
	upTo, err := replica.LastCommon(stores)
	problem("logs", err)
	var first replica.Digest
	for i, s := range stores {
		a, err := replica.AuditStores(ctx, p, s, func() replica.Machine { return newMachine(p) }, upTo)
		a.Node = fsm.NodeID(held[i].dir.NodeID())
		g.Replicas = append(g.Replicas, a.Audit)
		problem(held[i].path, err)
		switch d := a.Digest; {
		case err != nil || upTo == 0:
		case first.Sum == "":
			first = d
		case d != first:
			g.Problems = append(g.Problems, fmt.Sprintf("%s has the digest %s behind entry %d, %s behind "+
				"entry %d has %s", held[i].path, d.Sum, d.Index, held[0].path, first.Index, first.Sum))
		}
	}
	return g
}

// auditDirs audits data directories, and compares them when there are several. only is the partition to audit,
// or -1 for all.
func auditDirs(ctx context.Context, dirs []string, store string, only int) (_ []partition.GroupAudit, err error) {
	var nodes []stoppedNode
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.dir.Close())
		}
	}()
	ids := map[uint16]bool{}
	for _, path := range dirs {
		n, err := openStopped(path, store)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
		groups, err := n.dir.Groups()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, id := range groups {
			ids[id] = true
		}
	}
	var order []uint16
	for id := range ids { // sorted below
		if only < 0 || int(id) == only {
			order = append(order, id)
		}
	}
	slices.Sort(order)
	var out []partition.GroupAudit
	for _, id := range order {
		out = append(out, auditStopped(ctx, fsm.PartitionID(id), nodes))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
