package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Config is everything that can be set about the replicas of a node. Start from Defaults.
type Config struct {
	replica.Config

	// Name is what people called this node, empty if they did not: a name of two nodes that live is refused.
	Name string
	// Program is the version of the program, for people.
	Program string
	// Knows is the newest cluster version that the program says to know, and no higher one is ever made by this node. Only a
	// test sets it lower than fsm.NewestVersion: the node then behaves as one that runs an earlier program.
	Knows fsm.Version
	// Incarnation is this life of the node; Busbar's own proposals are numbered under it.
	Incarnation fsm.Incarnation
	// Limits are those of the namespace; what this node proposes to the catalog is judged by them.
	Limits catalog.Limits

	// StallAfter is the age of a store write at which the node stops serving; FatalAfter the age
	// at which OnFatal is called (R1).
	StallAfter time.Duration
	FatalAfter time.Duration
	// Disk sets when this node stops taking what its disk may not hold.
	Disk DiskLimits
	// MoveBytesPerSecond bounds the snapshots that this node sends to new replicas, all of them together; 0 for no bound.
	MoveBytesPerSecond int64
	// Partitions is how many data partitions this node wants the cluster to have; 0 if its operator did not say.
	Partitions int
	// RepairAfter is how long a replica must have failed before its group goes on without it and it is
	// rebuilt. A stuck replica that is opened anew must not be removed for that.
	RepairAfter time.Duration
	// ReplaceAfter is how long a node must be unreachable before another one takes its replicas. It must be well
	// above the time that a machine takes to start again. Moving data costs the most when a cluster has the least to
	// spare.
	ReplaceAfter time.Duration
	// VerifyPatience is how long a replica waits for peers that do not answer before it takes part
	// with what the others said of it. It delays an election only while a node is away.
	VerifyPatience time.Duration
}

// LeastMoveRate is the lowest bound of what a node sends to new replicas, in bytes per second. Below it a move would
// last for days.
const LeastMoveRate = 1 << 20

// Defaults returns the configuration that the project is tested with.
func Defaults() Config {
	return Config{
		Config:     replica.Defaults(),
		Knows:      fsm.NewestVersion,
		StallAfter: 5 * time.Second,
		FatalAfter: 15 * time.Second,
		Disk: DiskLimits{PublishFraction: 0.15, PublishFloor: 2 << 30, SettleFraction: 0.03,
			SettleFloor: 512 << 20},
		MoveBytesPerSecond: 32 << 20,
		RepairAfter:        5 * time.Second,
		ReplaceAfter:       10 * time.Minute,
		VerifyPatience:     2 * time.Second,
	}
}

// Validate reports every problem of c.
func (c *Config) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if err := c.Config.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Limits.Validate(); err != nil {
		errs = append(errs, err)
	}
	need(c.Knows >= fsm.OldestVersion && c.Knows <= fsm.NewestVersion, "Knows %s is not from %s to %s", c.Knows,
		fsm.OldestVersion, fsm.NewestVersion)
	need(c.StallAfter > 0 && c.FatalAfter > c.StallAfter,
		"StallAfter %v is not positive and below FatalAfter %v", c.StallAfter, c.FatalAfter)
	need(c.StuckAfter > c.FatalAfter && c.StuckAfter > 2*c.RPCTimeout,
		"StuckAfter %v is within what a slow disk or two calls of raft take", c.StuckAfter)
	need(c.Disk.problem() == "", "%s", c.Disk.problem())
	need(c.MoveBytesPerSecond == 0 || c.MoveBytesPerSecond >= LeastMoveRate,
		"MoveBytesPerSecond %d is neither 0 nor at least %d", c.MoveBytesPerSecond, LeastMoveRate)
	need(c.RepairAfter > watchdogEvery, "RepairAfter %v is not above %v, the time between two looks", c.RepairAfter,
		watchdogEvery)
	need(c.ReplaceAfter > c.RepairAfter, "ReplaceAfter %v is not above RepairAfter %v", c.ReplaceAfter, c.RepairAfter)
	need(c.VerifyPatience > 0, "VerifyPatience %v is not positive", c.VerifyPatience)
	return errors.Join(errs...)
}
