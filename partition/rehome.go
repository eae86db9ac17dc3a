package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
)

// A share moves to another partition in the steps that the catalog keeps (docs/decisions/0074-partitions-can-be-added.md).
// The leader of the catalog carries them out, and every command of a step may be repeated. So two leaders of the catalog
// that know nothing of each other do no harm, and each goes on where the other one stopped.

const (
	// maxRehomes bounds the shares that are on their way at a time.
	maxRehomes = 2
	// rehomeRounds bounds the rounds in which bodies are copied before the share is closed.
	rehomeRounds = 10
	// fewBodies and fewBytes are how much a round may find for the next one to be the last, with the share closed.
	fewBodies = 1000
	fewBytes  = 4 << 20
	// maxRehomeMessages bounds the messages of a share that moves: its records are sent while nobody serves it.
	maxRehomeMessages = 500_000
	// rehomePause bounds the time in which nobody serves the share. Then the old home serves it again.
	rehomePause = 15 * time.Second
	// rehomeStepTimeout bounds one attempt at a step that may be repeated.
	rehomeStepTimeout = 10 * time.Second
	// rehomeRetry is the pause before such a step is tried again.
	rehomeRetry = 200 * time.Millisecond
	// rehomePage is about how much of bodies or records one command carries.
	rehomePage = 192 << 10
)

// rehomeError says why a share does not move.
type rehomeError struct{ why string }

func (e *rehomeError) Error() string { return e.why }

// rehomer carries out the moves of shares where the catalog is led.
type rehomer struct {
	sup *control.Supervisor
	dir *Directory

	mu      sync.Mutex
	running map[fsm.EntityID]context.CancelFunc
}

// step begins what the catalog has, and ends it when the catalog is led elsewhere.
func (m *rehomer) step(ctx context.Context, f control.Facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	leads := false
	for _, r := range f.Replicas {
		leads = leads || r.ID() == fsm.CatalogPartition && r.Leading()
	}
	if !leads {
		for _, cancel := range m.running { // order-free: each for itself
			cancel()
		}
		return
	}
	for _, r := range f.View.Rehomings() {
		if m.running[r.ID] != nil || !r.Active() || len(m.running) >= maxRehomes {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		m.running[r.ID] = cancel
		m.sup.Go(func(context.Context) {
			defer func() {
				cancel()
				m.mu.Lock()
				defer m.mu.Unlock()
				delete(m.running, r.ID)
			}()
			m.carryOut(ctx, r.ID)
		})
	}
}

// carryOut takes the moves of an entity to their end.
func (m *rehomer) carryOut(ctx context.Context, id fsm.EntityID) {
	log := m.dir.host.deps.Log
	for ctx.Err() == nil {
		err := m.dir.catchUp(ctx)
		if v := m.dir.View(); err == nil && v != nil {
			r, ok := v.Rehoming(id)
			if !ok || !r.Active() {
				return
			}
			if err = m.advance(ctx, r); err == nil {
				continue
			}
			log.Info("the move of a share pauses", "entity_id", uint64(id), "step", r.Step, "from", r.From, "to", r.To, "error", err)
		}
		if sleep(ctx, rehomeRetry) != nil {
			return
		}
	}
}

// advance takes a move one step further.
func (m *rehomer) advance(ctx context.Context, r catalog.Rehoming) error {
	var next catalog.RehomeStep
	switch r.Step {
	case catalog.RehomingCopy:
		err := m.copy(ctx, r)
		var why *rehomeError
		switch {
		case err == nil:
			next.Step = catalog.RehomingOpen
		case errors.As(err, &why):
			next.Step, next.Why = catalog.RehomingBack, why.why
		default:
			return err
		}
	case catalog.RehomingOpen:
		if err := m.open(ctx, r); err != nil {
			return err
		}
	case catalog.RehomingBack:
		for _, c := range []struct {
			p    fsm.PartitionID
			step fsm.RehomeStep
		}{{r.From, fsm.RehomeReopen}, {r.To, fsm.RehomeDiscard}} {
			if err := m.propose(ctx, c.p, r.ID, &fsm.Rehome{Step: c.step, Epoch: r.Epoch}); err != nil {
				return err
			}
		}
	}
	next.ID, next.Epoch = r.ID, r.Epoch
	_, err := m.dir.change(ctx, &catalog.Change{Rehomed: &next})
	return err
}

// propose has a partition do a step, for ten seconds at most. A refusal that does not pass is a rehomeError.
func (m *rehomer) propose(limit context.Context, p fsm.PartitionID, id fsm.EntityID, c fsm.Command) error {
	ctx, cancel := context.WithTimeout(limit, rehomeStepTimeout)
	defer cancel()
	for {
		o, err := m.dir.send.propose(ctx, p, fsm.Request{Entity: id, Command: c}, &attempts{}, nil)
		switch {
		case err != nil:
			return fmt.Errorf("partition %d: %w", p, err)
		case o.Refusal == fsm.None:
			return nil
		case o.Refusal != fsm.Busy && o.Refusal != fsm.NotLeader && o.Refusal != fsm.Stale:
			return &rehomeError{fmt.Sprintf("partition %d: %v: %s", p, o.Refusal, o.Detail)}
		}
		if err := sleep(ctx, restorePause); err != nil {
			if o.Refusal == fsm.Busy && limit.Err() == nil {
				return &rehomeError{fmt.Sprintf("partition %d: %s", p, o.Detail)}
			}
			return fmt.Errorf("partition %d: %v: %s: %w", p, o.Refusal, o.Detail, err)
		}
	}
}

// open serves the share at its new home, and has the old one forget it.
func (m *rehomer) open(ctx context.Context, r catalog.Rehoming) error {
	d := m.dir.View().ByID(r.ID)
	if d == nil || d.Partitions[r.Share] != r.To {
		return fmt.Errorf("the catalog here does not have the move of entity %d yet: %w", r.ID, fsm.ErrUnavailable)
	}
	if err := m.propose(ctx, r.To, r.ID, &fsm.PutEntity{Descriptor: *d}); err != nil {
		return err
	}
	m.dir.publish(ctx)
	return m.propose(ctx, r.From, r.ID, &fsm.Rehome{Step: fsm.RehomeLeave, Epoch: r.Epoch})
}

// copy fills the new home. Bodies go in rounds while the old home serves; then it is closed, and the rest follows.
func (m *rehomer) copy(ctx context.Context, r catalog.Rehoming) error {
	after := uint64(0)
	for round := 0; ; round++ {
		img, err := m.image(ctx, r, 0, after)
		if err != nil {
			return err
		}
		switch {
		case img.Messages > maxRehomeMessages:
			err = &rehomeError{fmt.Sprintf("the share has %d messages, at most %d are moved", img.Messages, maxRehomeMessages)}
		case round == rehomeRounds:
			err = &rehomeError{"the share changes faster than it can be copied"}
		case !img.Closed:
			err = m.bodies(ctx, r, img)
		}
		img.close()
		if err != nil {
			return err
		}
		if img.Closed || img.Bodies <= fewBodies && img.Bytes <= fewBytes {
			break
		}
		after = max(after, img.Index)
		continue
	}
	return m.finish(ctx, r, after)
}

// finish closes the old home, and sends what is left. If that takes too long, the move is given up.
func (m *rehomer) finish(ctx context.Context, r catalog.Rehoming, after uint64) error {
	limit, cancel := context.WithTimeout(ctx, rehomePause)
	defer cancel()
	err := m.propose(limit, r.From, r.ID, &fsm.Rehome{Step: fsm.RehomeClose, Epoch: r.Epoch})
	if err == nil {
		err = m.last(limit, r, after)
	}
	var why *rehomeError
	if err == nil || errors.As(err, &why) || ctx.Err() != nil {
		return err
	}
	return &rehomeError{fmt.Sprintf("the share was not at its new home within %v: %v", rehomePause, err)}
}

// last sends what the new home of a closed share lacks, and seals it.
func (m *rehomer) last(ctx context.Context, r catalog.Rehoming, after uint64) error {
	img, err := m.image(ctx, r, r.Epoch, after)
	if err != nil {
		return err
	}
	defer img.close()
	if err := m.bodies(ctx, r, img); err != nil {
		return err
	}
	for at := uint64(0); at < img.Records; {
		piece, err := img.ask(ctx, shareRecords, at)
		if err != nil {
			return err
		}
		if len(piece) == 0 {
			return fmt.Errorf("the image of a share ends early: %w", fsm.ErrFormat)
		}
		for p := range slices.Chunk(piece, rehomePage) {
			c := &fsm.Rehome{Step: fsm.RehomeImage, Epoch: r.Epoch, At: at, Image: p}
			if err := m.propose(ctx, r.To, r.ID, c); err != nil {
				return err
			}
			at += uint64(len(p))
		}
	}
	return m.propose(ctx, r.To, r.ID, &fsm.Rehome{Step: fsm.RehomeSeal, Epoch: r.Epoch, Size: img.Records, Sum: img.Sum})
}

// bodies stages the bodies of an image at the new home.
func (m *rehomer) bodies(ctx context.Context, r catalog.Rehoming, img *remoteImage) error {
	for at := uint64(0); at < uint64(img.Bodies); {
		b, err := img.ask(ctx, shareBodies, at)
		if err != nil {
			return err
		}
		next, list, err := parseBodies(b)
		if err != nil || next <= at {
			return fmt.Errorf("bodies from %d to %d: %w", at, next, errors.Join(err, fsm.ErrFormat))
		}
		at = next
		for len(list) > 0 {
			c, bytes := &fsm.Rehome{Step: fsm.RehomeBodies, Epoch: r.Epoch}, 0
			for len(list) > 0 && (bytes == 0 || bytes+len(list[0].body) <= rehomePage) {
				c.Bodies = append(c.Bodies, fsm.Message{Body: list[0].body})
				c.Places = append(c.Places, fsm.BodyRef{Index: list[0].at.Index, Offset: list[0].at.Offset})
				bytes += len(list[0].body)
				list = list[1:]
			}
			if err := m.propose(ctx, r.To, r.ID, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// remoteImage is the image of a share at a node.
type remoteImage struct {
	sharePoint
	dir  *Directory
	node fsm.NodeID
	from fsm.PartitionID
	name uint64
}

// image captures a share at any node that has a replica of its partition: with an epoch, closed for that move.
func (m *rehomer) image(ctx context.Context, r catalog.Rehoming, epoch, after uint64) (*remoteImage, error) {
	var all error
	for wait := captureWait; wait > 0 && ctx.Err() == nil; wait -= restorePause {
		all = nil
		for _, n := range m.dir.membersOf(r.From) {
			img := &remoteImage{dir: m.dir, node: n, from: r.From, name: rand.Uint64() | 1}
			b, err := img.call(ctx, shareOpen, shareAsk{Name: img.name, Entity: r.ID, Epoch: epoch, After: after})
			if err == nil {
				err = json.Unmarshal(b, &img.sharePoint)
			}
			if err == nil {
				return img, nil
			}
			all = errors.Join(all, fmt.Errorf("node %s: %w", n, err))
		}
		_ = sleep(ctx, restorePause)
	}
	return nil, errors.Join(all, ctx.Err(), fsm.ErrUnavailable)
}

func (i *remoteImage) ask(ctx context.Context, what byte, at uint64) ([]byte, error) {
	return i.call(ctx, what, shareAsk{Name: i.name, At: at})
}

func (i *remoteImage) call(ctx context.Context, what byte, ask shareAsk) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, rehomeStepTimeout)
	defer cancel()
	text, err := json.Marshal(&ask)
	if err != nil {
		return nil, err
	}
	b, err := i.dir.host.deps.Caller.Call(ctx, i.node, KindShare, append(append(verbHead(i.from, len(text)+1), what), text...))
	if err != nil {
		return nil, err
	}
	return openResult(b)
}

// close gives the image up; a node that does not hear of it does so by itself.
func (i *remoteImage) close() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_, _ = i.call(ctx, shareClose, shareAsk{Name: i.name})
}

// Rehome begins to move the shares of a queue to the partitions with the fewest shares. A queue with one share may go to
// a partition that is named. With dryRun it tells the moves and begins none. There are none if that would make no
// difference.
func (d *Directory) Rehome(ctx context.Context, name string, to fsm.PartitionID, dryRun bool) ([]catalog.ShareMove, error) {
	if err := d.catchUp(ctx); err != nil {
		return nil, err
	}
	v := d.View()
	e := v.Entity(name)
	if e == nil {
		return nil, fmt.Errorf("entity %q: %w", name, fsm.ErrNoEntity)
	}
	moves := v.PlanRehome(e)
	if to != 0 {
		if len(e.Partitions) != 1 {
			return nil, &fsm.RefusedError{Refusal: fsm.InvalidArgument, Detail: "a queue with several shares is spread; name no partition"}
		}
		moves = []catalog.ShareMove{{To: to}}
		if e.Partitions[0] == to {
			moves = nil
		}
	}
	if e.Kind != fsm.Queue {
		return nil, &fsm.RefusedError{Refusal: fsm.InvalidOperation,
			Detail: fmt.Sprintf("%q is no queue: topics and subscriptions stay in their partitions", name)}
	}
	if dryRun || len(moves) == 0 {
		return moves, nil
	}
	if _, err := d.change(ctx, &catalog.Change{Rehome: &catalog.Rehome{ID: e.ID, Moves: moves}}); err != nil {
		return moves, err
	}
	d.publish(ctx) // who waits for the end asks any node, and a move that a node does not know yet seems to be over
	return moves, nil
}
