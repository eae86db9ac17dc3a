package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	firstKill = 3 * time.Second
	oneIsDead = 2 * time.Second
	comesBack = time.Minute
)

// KillLeaders kills the leader of a queue's partition over and over, until over is closed, and starts
// it again each time. All nodes live for the duration live between two kills. The queue is the first one whose name
// contains part. It returns the number of kills.
func (c *Cluster) KillLeaders(part string, live time.Duration, over <-chan struct{}) (kills int, err error) {
	wait := firstKill
	for {
		select {
		case <-over:
			return kills, nil
		case <-time.After(wait):
		}
		leader, err := c.LeaderOf(part)
		if err != nil {
			continue // between two leaders, or the queue does not exist yet
		}
		leader.Kill()
		kills, wait = kills+1, live
		time.Sleep(oneIsDead)
		if err := leader.Start(); err != nil {
			return kills, fmt.Errorf("start %s again: %w", leader.ID, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), comesBack)
		err = leader.WaitReady(ctx)
		cancel()
		if err != nil {
			return kills, fmt.Errorf("wait for %s: %w", leader.ID, err)
		}
	}
}

// LeaderOf returns the node that leads the first partition of the first queue whose name contains part.
func (c *Cluster) LeaderOf(part string) (*Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, entity := range s.Entities {
		if !strings.Contains(entity.Name, part) {
			continue
		}
		for _, p := range s.Partitions {
			if p.ID == entity.Shares[0] && p.Leader != "" {
				return c.NodeOf(ctx, p.Leader)
			}
		}
	}
	return nil, fmt.Errorf("no leader of %s is known", part)
}
