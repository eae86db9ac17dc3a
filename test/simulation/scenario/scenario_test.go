package scenario

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// patience bounds every step that is expected to succeed, in virtual time.
const patience = time.Minute

// bench is a scenario under way: a cluster, its clients, and what they expect. Its methods end the
// test when a step that has to work does not; those whose name begins with try return the error.
type bench struct {
	*testing.T
	lab     *simulation.Lab
	ctx     context.Context
	clients atomic.Int32
	began   time.Time
}

// on runs a scenario on a cluster of its own.
func on(t *testing.T, cfg simulation.LabConfig, f func(b *bench)) {
	simulation.InLab(t, cfg, func(t *testing.T, l *simulation.Lab) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		f(&bench{T: t, lab: l, ctx: ctx, began: time.Now()})
	})
}

// onThree runs a scenario on three nodes with one data partition.
func onThree(t *testing.T, f func(b *bench)) { on(t, simulation.LabConfig{}, f) }

// onOne runs a scenario on one node with one data partition, where three would prove no more.
func onOne(t *testing.T, f func(b *bench)) { on(t, simulation.LabConfig{Nodes: 1}, f) }

// onFour runs a scenario on three nodes with four data partitions.
func onFour(t *testing.T, f func(b *bench)) { on(t, simulation.LabConfig{Partitions: 4}, f) }

// labOf has replicas that take snapshots often.
func labOf(snapshotEntries uint64) simulation.LabConfig {
	return simulation.LabConfig{SnapshotEntries: snapshotEntries}
}

func labOfPartitions(n int) simulation.LabConfig { return simulation.LabConfig{Partitions: n} }

// later runs f beside the scenario, which waits for its end on the channel.
func (b *bench) later(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// waiting receives one message beside the scenario; nil says that none came in time.
func (b *bench) waiting(r *receiver, wait time.Duration) chan *got {
	done := make(chan *got, 1)
	go func() {
		m, err := r.try(wait)
		if err != nil {
			b.Errorf("receive: %v", err)
		}
		done <- m
	}()
	return done
}

// must ends the test if a step failed.
func (b *bench) must(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v (%s after the start)", what, err, time.Since(b.began).Round(time.Millisecond))
	}
}

// want compares.
func want[T comparable](b *bench, what string, got, want T) {
	b.Helper()
	if got != want {
		b.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// wantAll compares lists.
func wantAll[T comparable](b *bench, what string, got []T, want ...T) {
	b.Helper()
	if !slices.Equal(got, want) {
		b.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// about checks that a moment lies within slack of another.
func (b *bench) about(what string, got, want time.Time, slack time.Duration) {
	b.Helper()
	if d := got.Sub(want); d < -slack || d > slack {
		b.Fatalf("%s: %s after the start, want %s", what, got.Sub(b.began), want.Sub(b.began))
	}
}

// pass lets virtual time pass.
func (b *bench) pass(d time.Duration) { time.Sleep(d) }

// refused checks that a step was refused with a condition (amqp-protocol.md, section 12).
func (b *bench) refused(what string, err error, condition string) {
	b.Helper()
	if err == nil {
		b.Fatalf("%s succeeded, want %s", what, condition)
	}
	if got := conditionOf(err); got != condition {
		b.Fatalf("%s: %q (%v), want %s", what, got, err, condition)
	}
}

// refusedAs checks that the management of entities refused a change with a refusal of the state machine.
func (b *bench) refusedAs(what string, err error, refusal fsm.Refusal) {
	b.Helper()
	var refused *fsm.RefusedError
	if !errors.As(err, &refused) || refused.Refusal != refusal {
		b.Fatalf("%s: %v, want refusal %d", what, err, refusal)
	}
}

// Conditions, as clients see them.
const (
	lockLost        = "com.microsoft:message-lock-lost"
	sessionLost     = "com.microsoft:session-lock-lost"
	sessionHeld     = "com.microsoft:session-cannot-be-locked"
	notFound        = "com.microsoft:message-not-found"
	entityNotFound  = "amqp:not-found"
	entityDisabled  = "com.microsoft:entity-disabled"
	notAllowed      = "amqp:not-allowed"
	invalidArgument = "com.microsoft:argument-error"
	tooLarge        = "amqp:link:message-size-exceeded"
	quotaExceeded   = "amqp:resource-limit-exceeded"
	notImplemented  = "amqp:not-implemented"
	timedOut        = "com.microsoft:timeout"
)

// conditionOf is the AMQP condition in an error, "" if there is none.
func conditionOf(err error) string {
	var asked *askError
	var refused *goamqp.Error
	var link *goamqp.LinkError
	var session *goamqp.SessionError
	switch {
	case errors.As(err, &asked):
		return asked.condition
	case errors.As(err, &link) && link.RemoteErr != nil:
		return string(link.RemoteErr.Condition)
	case errors.As(err, &session) && session.RemoteErr != nil:
		return string(session.RemoteErr.Condition)
	case errors.As(err, &refused):
		return string(refused.Condition)
	}
	return ""
}

// queue creates a queue with LockDuration 5 s and MaxDeliveryCount 10, changed by the options.
func (b *bench) queue(name string, options ...func(*fsm.Descriptor)) string {
	b.Helper()
	_, err := b.tryQueue(name, options...)
	b.must("create "+name, err)
	return name
}

func (b *bench) tryQueue(name string, options ...func(*fsm.Descriptor)) (*fsm.Descriptor, error) {
	d := fsm.Descriptor{
		Kind: fsm.Queue, Name: name, LockDuration: 5_000, MaxDelivery: 10, MaxMessageBytes: 256 << 10,
		MaxSizeBytes: 1 << 30, DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited,
		DuplicateWindow: 600_000,
	}
	for _, o := range options {
		o(&d)
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return b.lab.Directory(b.node()).Create(ctx, d)
}

// update changes an entity.
func (b *bench) update(name string, options ...func(*fsm.Descriptor)) {
	b.Helper()
	b.must("update "+name, b.tryUpdate(name, options...))
}

func (b *bench) tryUpdate(name string, options ...func(*fsm.Descriptor)) error {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	old, err := b.lab.Directory(b.node()).Get(ctx, name)
	if err != nil {
		return err
	}
	d := *old
	for _, o := range options {
		o(&d)
	}
	_, err = b.lab.Directory(b.node()).Update(ctx, d)
	return err
}

// counts are the counters of an entity, added up over its shares.
func (b *bench) counts(name string) fsm.EntityCounts {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	d, err := b.lab.Directory(b.node()).Get(ctx, name)
	b.must("find "+name, err)
	var sum fsm.EntityCounts
	for i := range d.Partitions {
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(i)}
		a, err := b.router().Query(ctx, k, &fsm.Counts{})
		b.must("count "+name, err)
		want(b, "refusal of the counters", a.Refusal, fsm.None)
		sum.Add(a.Counts)
	}
	return sum
}

// Options of queues.
func sessions(d *fsm.Descriptor)    { d.RequiresSession = true }
func partitioned(d *fsm.Descriptor) { d.Partitioned = true }
func duplicates(d *fsm.Descriptor)  { d.DetectDuplicates = true }
func deadExpired(d *fsm.Descriptor) { d.DeadLetterOnExpiration = true }

func lockFor(t time.Duration) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.LockDuration = fsm.Millis(t.Milliseconds()) }
}

func maxDelivery(n uint32) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.MaxDelivery = n }
}

func defaultTTL(t time.Duration) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.DefaultTTL = fsm.Millis(t.Milliseconds()) }
}

func maxBytes(n uint64) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.MaxSizeBytes = n }
}

func status(s fsm.Status) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.Status = s }
}

// propose makes a command of the test's own, with a request id of its own, through any node's router.
func (b *bench) propose(name string, id fsm.RequestID, c fsm.Command) fsm.Outcome {
	b.Helper()
	return b.proposeAt(b.node(), name, id, c)
}

func (b *bench) proposeAt(node int, name string, id fsm.RequestID, c fsm.Command) fsm.Outcome {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	d, err := b.lab.Directory(node).Get(ctx, name)
	b.must("find "+name, err)
	o, err := b.lab.Router(node).Propose(ctx, id, fsm.Key{Entity: d.ID}, c)
	b.must("propose", err)
	return o
}
