package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A message in transit has a number at its source. The destination decides once about each number of a source,
// however often and however late it is asked (S-311). So the leader of the source may send what is in transit again
// at any time, and only the two states have to be remembered. A crash between any two steps leaves a message in
// transit, and the next leader goes on with it (S-212).

// source is a subqueue whose messages go elsewhere.
type source struct {
	entity fsm.EntityID
	sub    fsm.SubQueue
}

const (
	// moveMessages and moveBytes bound what is taken in one step; an answer must fit a frame.
	moveMessages = 256
	moveBytes    = 1 << 20
	// maxHeld bounds what one source has in memory while destinations cannot be reached. Messages that are not taken
	// stay where they are.
	maxHeld = 1024
	// moveTimeout bounds one attempt to reach a destination.
	moveTimeout = 10 * time.Second
	// placePatience is for how long a source that moves nothing keeps its place before others that wait for one.
	placePatience = 2 * time.Second
	// firstMovePause is the pause after a first failure, maxMovePause the longest (S-277): n squared
	// times the first.
	firstMovePause = time.Second
	maxMovePause   = time.Minute
	// heldPause is how often a forwarder looks whether a backup still holds forwards.
	heldPause = 50 * time.Millisecond
)

// item is one message in transit.
type item struct {
	move  fsm.Move
	msg   fsm.Message
	rest  []fsm.BodyRef // of a large body the parts that msg does not hold
	taken time.Time
}

// target is where some of the messages of a source go: one share of an entity. Order is kept in it.
type target struct {
	entity    fsm.EntityID
	share     int             // -1: not resolved yet
	partition fsm.PartitionID // that the share was in last
	items     []item
	failures  int
	due       time.Time
}

// forwarder moves the messages of one source, as long as its partition is led here.
type forwarder struct {
	src   source
	epoch uint64
	rep   *replica.Replica
	dir   *Directory
	// origin is the partition by which destinations know the source.
	origin fsm.PartitionID
	// wake tells that there is something to move; capacity 1.
	wake <-chan struct{}
	// crowded reports whether another source waits for a place.
	crowded func() bool

	targets map[targetKey]*target
	order   []targetKey // of the targets, as they came
	held    int
	done    []fsm.Moved
	blind   bool // where messages go could not be looked up
}

type targetKey struct {
	entity fsm.EntityID
	share  int
}

// errNothing says that nothing is left to do until somebody wakes.
var errNothing = errors.New("nothing to move")

// errHeld says that a backup holds forwards. The source hears what has ended when the hold is over.
var errHeld = errors.New("forwards are held")

// errCrowded says that a source can move nothing for now, and that another one waits for its place.
var errCrowded = errors.New("another source waits")

// run moves messages until nothing is left, the leadership ends, or ctx does.
func (f *forwarder) run(ctx context.Context) error {
	if err := f.resume(ctx); err != nil {
		return err
	}
	for moved := time.Now(); ; {
		f.attempt(ctx)
		took, err := f.step(ctx)
		if errors.Is(err, errHeld) {
			if err := sleep(ctx, heldPause); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if took > 0 || len(f.done) > 0 {
			moved = time.Now()
			continue
		}
		if f.held == 0 && !f.blind {
			return errNothing
		}
		if time.Since(moved) >= placePatience && f.crowded() {
			return errCrowded
		}
		if err := f.sleep(ctx); err != nil {
			return err
		}
	}
}

// resume takes up what was in transit when the leadership began.
func (f *forwarder) resume(ctx context.Context) error {
	var there bool
	// It is asked for first: a share that is deleted later would not tell.
	if f.origin, there = originOf(f.rep, f.src.entity); !there {
		return errNothing
	}
	q := &fsm.Moving{Max: moveMessages, MaxBytes: moveBytes}
	for {
		a, err := f.rep.Query(ctx, fsm.QueryRequest{Entity: f.src.entity, Sub: f.src.sub, Query: q})
		if err != nil {
			return fmt.Errorf("what is in transit: %w", err)
		}
		if a.Refusal != fsm.None {
			return errNothing // the entity is gone
		}
		f.hold(ctx, a.Messages, a.Moves)
		if a.Next == 0 {
			return nil
		}
		q.After = a.Next
	}
}

// step reports to the source what ended, and takes what comes next.
func (f *forwarder) step(ctx context.Context) (took int, err error) {
	c := &fsm.Forward{Epoch: f.epoch, Done: f.done}
	f.blind = false
	if f.held < maxHeld {
		to, ok, err := f.destination(ctx)
		if err != nil {
			return 0, err
		}
		if ok {
			c.To, c.Max, c.MaxBytes = to, moveMessages, moveBytes
		}
	}
	if c.Max == 0 && len(c.Done) == 0 {
		return 0, nil
	}
	o, err := f.rep.Propose(ctx, fsm.Request{Entity: f.src.entity, Sub: f.src.sub, Command: c})
	if err != nil {
		// Whether it was applied the state knows: the next life of this forwarder asks it.
		return 0, fmt.Errorf("forward: %w", err)
	}
	switch o.Refusal {
	case fsm.None:
	case fsm.Busy:
		return 0, errHeld
	default:
		return 0, &fsm.RefusedError{Refusal: o.Refusal, Detail: o.Detail}
	}
	f.done = nil
	f.hold(ctx, o.Locked, o.Moves)
	return len(o.Moves), nil
}

// hold sorts messages in transit by their targets.
func (f *forwarder) hold(ctx context.Context, ds []fsm.Delivery, moves []fsm.Move) {
	now := time.Now()
	for i := range moves {
		var reserved fsm.SequenceNumber
		if f.src.sub == fsm.TransferQueue { // the number that it has at its destination, if one is reserved
			reserved, ds[i].Seq = ds[i].Seq, 0
		}
		msg, err := fsm.Carry(&ds[i], &moves[i])
		msg.Reserved = reserved
		if err != nil {
			f.ended(moves[i].Number, fsm.InvalidArgument, err.Error())
			continue
		}
		f.put(f.route(ctx, &moves[i], &msg), item{moves[i], msg, ds[i].Rest, now})
	}
}

// originOf returns the partition by which destinations know a source: the first one that its share was in. It is false if
// the share is not here.
func originOf(rep *replica.Replica, id fsm.EntityID) (origin fsm.PartitionID, ok bool) {
	origin, ok = rep.ID(), true
	rep.View(func(m replica.Machine, _ uint64) {
		if o, is := m.(interface {
			OriginOf(id fsm.EntityID) (fsm.PartitionID, bool)
		}); is {
			origin, ok = o.OriginOf(id)
		}
	})
	return origin, ok
}

// put has an item wait for its target, and returns which one that is. Behind messages whose share could not be looked up
// all others to the entity wait, so that they keep their order.
func (f *forwarder) put(k targetKey, it item) targetKey {
	unknown := targetKey{entity: k.entity, share: -1}
	if t := f.targets[unknown]; t != nil && len(t.items) > 0 {
		k = unknown
	}
	t := f.targets[k]
	if t == nil {
		t = &target{entity: k.entity, share: k.share}
		f.targets[k] = t
		f.order = append(f.order, k)
	}
	t.items = append(t.items, it)
	f.held++
	return k
}

func (f *forwarder) ended(number uint64, r fsm.Refusal, detail string) {
	f.done = append(f.done, fsm.Moved{Number: number, Refusal: r, Detail: detail})
}

// attempt tries every target that is due.
func (f *forwarder) attempt(ctx context.Context) {
	for _, k := range append([]targetKey(nil), f.order...) {
		t := f.targets[k]
		for len(t.items) > 0 && !time.Now().Before(t.due) && ctx.Err() == nil {
			if !f.send(ctx, k, t) {
				t.failures++
				t.due = time.Now().Add(movePause(t.failures))
				break
			}
			t.failures = 0
		}
	}
	f.prune()
}

// prune forgets targets without messages.
func (f *forwarder) prune() {
	keep := f.order[:0]
	for _, k := range f.order {
		if len(f.targets[k].items) == 0 {
			delete(f.targets, k)
			continue
		}
		keep = append(keep, k)
	}
	f.order = keep
}

// movePause is the pause after the n-th failure in a row (S-277).
func movePause(n int) time.Duration {
	n = min(n, 8) // the square of 8 seconds is beyond the longest
	return min(time.Duration(n*n)*firstMovePause, maxMovePause)
}

// send sends the first messages of a target, and reports whether the target decided about any of them.
func (f *forwarder) send(ctx context.Context, k targetKey, t *target) bool {
	if t.share < 0 {
		return f.resolve(ctx, k, t)
	}
	// The share may have moved to another partition since. It was closed where it was, and its decisions moved with it.
	switch d, err := f.dir.ByID(ctx, t.entity); {
	case err == nil && t.share < len(d.Partitions):
		t.partition = d.Partitions[t.share]
	case t.partition == 0:
		return f.gone(ctx, t)
	}
	c := &fsm.Enqueue{Origin: &fsm.Origin{Entity: f.src.entity, Partition: f.origin, Sub: f.src.sub, Below: f.below(t)}}
	bytes := 0
	for i := range t.items {
		bytes += len(t.items[i].msg.Body)
		// A large one goes alone.
		if i == moveMessages || i > 0 && (bytes > moveBytes || len(t.items[i].rest) > 0 || len(t.items[0].rest) > 0) {
			break
		}
		c.Messages = append(c.Messages, t.items[i].msg)
		c.Origin.Numbers = append(c.Origin.Numbers, t.items[i].move.Number)
	}
	refused, err := f.upload(ctx, t, c)
	if err != nil {
		f.rep.Log().Debug("a large message was not uploaded", "entity_id", uint64(t.entity), "error", err)
		return false
	}
	limit, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	var a attempts
	o, err := f.dir.send.propose(limit, t.partition, fsm.Request{Entity: t.entity, Command: c}, &a, nil)
	if err == nil && refused != nil && o.Refusal == fsm.UploadLost {
		o = refused.o // it was not taken before: what was said of its part is said of it
	}
	switch {
	case err != nil:
		f.rep.Log().Debug("a destination was not reached", "entity_id", uint64(t.entity), "error", err)
		return false
	case o.Refusal == fsm.Stale:
		return f.gone(ctx, t) // the share has not heard of the entity yet, or not any more
	case o.Refusal == fsm.EntityNotFound:
		f.refuse(t, len(t.items), o.Refusal, o.Detail)
		return true
	case o.Refusal == fsm.None && len(o.Refusals) == len(c.Messages):
		return f.judge(t, o.Refusals, o.Detail)
	case o.Refusal == fsm.None || o.Refusal == fsm.Busy || o.Refusal == fsm.NotLeader ||
		o.Refusal == fsm.UploadLost || o.Refusal == fsm.QuotaExceeded && f.src.sub == fsm.TransferQueue: // S-237
		return false
	}
	f.refuse(t, len(c.Messages), o.Refusal, o.Detail)
	return true
}

// below is the smallest number that a target can be asked for again. It is that of the first message that waits, or of one
// that the source still has in transit. Other targets do not matter: what they have not decided would hold this one back.
func (f *forwarder) below(t *target) uint64 {
	below := t.items[0].move.Number
	for i := range f.done {
		below = min(below, f.done[i].Number)
	}
	return below
}

// judge ends the moves that the destination has decided about, up to the first that it has not.
func (f *forwarder) judge(t *target, decided []fsm.Refusal, detail string) bool {
	n := 0
	for n < len(decided) && decided[n] != fsm.Busy {
		text := ""
		if decided[n] != fsm.None {
			text = cmp.Or(detail, refusalText(decided[n]))
		}
		f.tell(t.entity, &t.items[n], decided[n])
		f.ended(t.items[n].move.Number, decided[n], text)
		n++
	}
	f.drop(t, n)
	return n > 0
}

// refusalText is what a dead letter tells its reader beside the reason (S-174). A destination that decides about
// several messages answers with no words of its own.
func refusalText(r fsm.Refusal) string {
	switch r {
	case fsm.SessionRequired:
		return "The destination requires a session id; the message has none."
	case fsm.EntityDisabled:
		return "The status of the destination forbids that messages are sent to it."
	case fsm.MessageSizeExceeded:
		return "The message is larger than the destination takes."
	case fsm.QuotaExceeded:
		return "The destination is full."
	}
	return fmt.Sprintf("The destination refused the message: %s.", r)
}

func (f *forwarder) refuse(t *target, n int, r fsm.Refusal, detail string) {
	for i := range t.items[:n] {
		f.tell(t.entity, &t.items[i], r)
		f.ended(t.items[i].move.Number, r, detail)
	}
	f.drop(t, n)
}

func (f *forwarder) drop(t *target, n int) {
	clear(t.items[:n])
	t.items = t.items[n:]
	f.held -= n
}

// gone ends the moves to an entity that the catalog, asked linearizably, does not know any more.
func (f *forwarder) gone(ctx context.Context, t *target) bool {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if _, err := f.dir.askID(ctx, t.entity); t.entity != 0 && !errors.Is(err, fsm.ErrNoEntity) {
		return false
	}
	f.refuse(t, len(t.items), fsm.EntityNotFound, "the entity to forward to does not exist")
	return true
}

// resolve looks a target up that could not be looked up when its messages were taken.
func (f *forwarder) resolve(ctx context.Context, k targetKey, t *target) bool {
	if t.entity == 0 {
		f.refuse(t, len(t.items), fsm.EntityNotFound, "the entity to forward to does not exist")
		return true
	}
	if f.gone(ctx, t) {
		return true
	}
	moved := false
	items := t.items
	t.items = nil
	f.held -= len(items)
	for i := range items {
		to := f.put(f.route(ctx, &items[i].move, &items[i].msg), items[i])
		moved = moved || to != k
	}
	return moved
}

// sleep waits for the first target that is due, or for more to move if there is room for it.
func (f *forwarder) sleep(ctx context.Context) error {
	next := time.Now().Add(maxMovePause)
	if f.blind {
		next = time.Now().Add(firstMovePause)
	}
	for _, t := range f.targets { // order-free: only the least
		if t.due.Before(next) {
			next = t.due
		}
	}
	t := time.NewTimer(time.Until(next))
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// upload brings the parts of a large message to its destination. A large message is alone in its command c. The parts are
// read here one by one. A refusal of a part decides nothing yet, because an earlier attempt may have been accepted.
func (f *forwarder) upload(ctx context.Context, t *target, c *fsm.Enqueue) (*refusedPart, error) {
	rest := t.items[0].rest
	if len(rest) == 0 {
		return nil, nil
	}
	u := &upload{s: f.dir.send, partition: t.partition, entity: t.entity,
		stale: func(int) (fsm.Refusal, error) { return fsm.Stale, nil }}
	size := 0
	for _, ref := range rest {
		size += int(ref.Length)
	}
	up, err := u.body(ctx, size, func(int) ([]byte, error) {
		part := []fsm.Delivery{{Ref: rest[0]}}
		rest = rest[1:]
		err := f.rep.Fill(part)
		return part[0].Body, err
	})
	c.Messages[0].Rest = fsm.Upload{ID: up.ID, Parts: max(up.Parts, 1), Bytes: uint32(size)}
	var refused *refusedPart
	if errors.As(err, &refused) {
		return refused, nil
	}
	return nil, err
}
