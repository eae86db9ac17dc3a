package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A body that is too large for one log entry goes to the partition in parts, one after the other. The command that
// stores it refers to them (docs/decisions/0043). This file cuts bodies up in front of the log and puts them together
// behind it, so that front ends see whole bodies only.

const (
	// cutBytes is the shortest body that is uploaded when a command as a whole is too large.
	cutBytes = 64 << 10
	// uploadTries bounds how often a command is uploaded again because its parts had expired.
	uploadTries = 3
	// maxPartPause bounds the pause between two parts.
	maxPartPause = 50 * time.Millisecond
	// fetchBytes is how much of a body one query reads.
	fetchBytes = 512 << 10
	// fetchTime bounds the reading of bodies that nobody else can get any more, because the message was
	// removed when it was received.
	fetchTime = 2 * time.Minute
)

// errUploadLost says that staged parts have expired.
var errUploadLost = errors.New("parts of a body are not there any more")

// oversize reports whether the command must be uploaded in parts.
func oversize(c fsm.Command) bool {
	switch c := c.(type) {
	case *fsm.SetSessionState:
		return len(c.State) > fsm.WholeBytes
	case *fsm.Enqueue, *fsm.Transfer, *fsm.Commit:
		return bodyBytes(c) > fsm.WholeBytes
	}
	return false
}

func bodyBytes(c fsm.Command) (n int) {
	switch c := c.(type) {
	case *fsm.SetSessionState:
		return len(c.State)
	case *fsm.Commit:
		for i := range c.Ops {
			n += bodyBytes(c.Ops[i].Command)
		}
		return n
	}
	fsm.EachMessage(c, func(m *fsm.Message) { n += len(m.Body) })
	return n
}

// turns gives each partition one uploader at a time: however many large bodies a node takes, others
// find the log as busy as with one.
type turns struct {
	mu sync.Mutex
	of map[fsm.PartitionID]chan struct{}
}

// take waits for the turn of a partition and returns what ends it.
func (t *turns) take(ctx context.Context, p fsm.PartitionID) (end func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[fsm.PartitionID]chan struct{}{}
	}
	c := t.of[p]
	if c == nil {
		c = make(chan struct{}, 1)
		t.of[p] = c
	}
	t.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// upload is one body on its way into a partition.
type upload struct {
	s         *sender
	partition fsm.PartitionID
	entity    fsm.EntityID
	a         *attempts
	// stale waits for the share to hear of its entity. It returns fsm.EntityNotFound if there is none.
	stale func(n int) (fsm.Refusal, error)
}

// refusedPart is the refusal of a part, which is one of the whole command.
type refusedPart struct{ o fsm.Outcome }

func (e *refusedPart) Error() string {
	return fmt.Sprintf("a part was refused: %v %s", e.o.Refusal, e.o.Detail)
}

// body uploads size bytes. read returns the next at most n of them, which it may use again.
func (u *upload) body(ctx context.Context, size int, read func(n int) ([]byte, error)) (fsm.Upload, error) {
	out := fsm.Upload{ID: newUploadID(), Bytes: uint32(size)}
	for left := size; left > 0; out.Parts++ {
		b, err := read(min(left, fsm.PartBytes))
		if err != nil {
			return out, err
		}
		if err := u.part(ctx, &fsm.BodyPart{Upload: out.ID, Number: out.Parts, Body: b}); err != nil {
			return out, err
		}
		left -= len(b)
	}
	return out, nil
}

// part stages one part, and then leaves the log to others for as long as that took.
func (u *upload) part(ctx context.Context, c *fsm.BodyPart) error {
	end, err := u.s.turns.take(ctx, u.partition)
	if err != nil {
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, err)
	}
	defer end()
	began := time.Now()
	for stale := 1; ; stale++ {
		req := fsm.Request{Entity: u.entity, Command: c}
		o, err := u.s.propose(ctx, u.partition, req, &attempts{}, nil)
		if err != nil {
			return uploadError(err)
		}
		switch o.Refusal {
		case fsm.None:
			return sleep(ctx, min(time.Since(began), maxPartPause))
		case fsm.UploadLost:
			return errUploadLost
		case fsm.NotLeader:
		case fsm.Busy:
			err = sleep(ctx, maxPartPause)
		case fsm.Stale:
			if o.Refusal, err = u.stale(stale); o.Refusal != fsm.None {
				return &refusedPart{o}
			}
		default:
			return &refusedPart{o}
		}
		if err != nil {
			return err
		}
	}
}

// uploadError makes an error of a part one of the whole command: whatever became of the part, nobody
// has stored a message.
func uploadError(err error) error {
	if errors.Is(err, fsm.ErrUnknown) {
		return fmt.Errorf("%w: upload of a part: %v", fsm.ErrUnavailable, err)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, ctx.Err())
	}
}

// bytesOf returns a reader for body.
func bytesOf(body []byte) func(n int) ([]byte, error) {
	return func(n int) ([]byte, error) {
		b := body[:n]
		body = body[n:]
		return b, nil
	}
}

// command uploads what is large in c and returns a command that refers to it.
func (u *upload) command(ctx context.Context, c fsm.Command) (fsm.Command, error) {
	switch c := c.(type) {
	case *fsm.Enqueue:
		messages, err := u.messages(ctx, c.Messages)
		return &fsm.Enqueue{Messages: messages, Origin: c.Origin}, err
	case *fsm.Transfer:
		messages, err := u.messages(ctx, c.Messages)
		return &fsm.Transfer{To: c.To, Messages: messages}, err
	case *fsm.SetSessionState:
		if len(c.State) <= cutBytes {
			return c, nil
		}
		rest, err := u.body(ctx, len(c.State), bytesOf(c.State))
		return &fsm.SetSessionState{Session: c.Session, Rest: rest}, err
	case *fsm.Commit:
		out := &fsm.Commit{ID: c.ID, Ops: append([]fsm.Op(nil), c.Ops...)}
		for i := range out.Ops {
			op := &out.Ops[i]
			u.entity = op.Entity
			cut, err := u.command(ctx, op.Command)
			if err != nil {
				return nil, err
			}
			op.Command = cut
		}
		return out, nil
	}
	return c, nil
}

func (u *upload) messages(ctx context.Context, in []fsm.Message) ([]fsm.Message, error) {
	out := append([]fsm.Message(nil), in...)
	for i := range out {
		m := &out[i]
		head := stored.HeadBytes(m.Body)
		if len(m.Body) <= cutBytes || head == len(m.Body) {
			continue
		}
		rest, err := u.body(ctx, len(m.Body)-head, bytesOf(m.Body[head:]))
		if err != nil {
			return nil, err
		}
		m.Body, m.Rest = m.Body[:head:head], rest
	}
	return out, nil
}

// proposeLarge is Router.Propose for a command that does not fit one log entry.
func (r *Router) proposeLarge(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command, a *attempts) (
	fsm.Outcome, error) {
	to, err := r.resolve(ctx, k)
	if err != nil {
		return unrouted(err)
	}
	if to.d != nil && len(to.d.Partitions) > 1 { // from here on no other share will do
		k.By, k.Share = fsm.ByShare, uint16(to.share)
	}
	u := &upload{s: r.send, partition: to.partition, entity: k.Entity, a: a}
	u.stale = func(n int) (fsm.Refusal, error) {
		d, err := r.awaitShare(ctx, u.entity, n)
		if errors.Is(err, fsm.ErrNoEntity) {
			return fsm.EntityNotFound, nil
		}
		if err == nil && d.ID == k.Entity { // the parts that are staged have moved with their share
			to.follow(d)
			u.partition = to.partition
		}
		return fsm.None, err
	}
	for range uploadTries {
		cut, err := u.command(ctx, c)
		var refused *refusedPart
		switch {
		case errors.As(err, &refused):
			if _, ok := c.(*fsm.Commit); ok {
				detail := fmt.Sprintf("%v: %s", refused.o.Refusal, refused.o.Detail)
				return fsm.Outcome{Refusal: fsm.TransactionAborted, Detail: detail}, nil
			}
			return refused.o, nil
		case errors.Is(err, errUploadLost):
			continue
		case err != nil && a.unknown != nil:
			return fsm.Outcome{}, fmt.Errorf("%w: %w", fsm.ErrUnknown, err) // of an earlier round
		case err != nil:
			return fsm.Outcome{}, err
		}
		o, err := r.propose(ctx, id, k, cut, a)
		if err != nil || !lostUpload(&o) {
			return o, err
		}
	}
	return fsm.Outcome{}, fmt.Errorf("%w: %w", fsm.ErrUnavailable, errUploadLost)
}

// lostUpload reports whether a command was refused because its parts had expired.
func lostUpload(o *fsm.Outcome) bool {
	if o.Refusal == fsm.TransactionAborted && len(o.Ops) > 0 {
		return o.Ops[len(o.Ops)-1].Refusal == fsm.UploadLost
	}
	return o.Refusal == fsm.UploadLost
}

// OnLarge has f called with the length of every body that is about to be read into memory in parts. It is called before
// the front end serves.
func (r *Router) OnLarge(f func(bytes int)) { r.send.large.Store(&f) }

// errGone says that a body was freed while it was read: somebody else has settled the message, or its
// lock has run out.
var errGone = errors.New("the body is not there any more")

// assemble reads the parts of deliveries. Messages whose bodies are gone are left out.
func (r *Router) assemble(ctx context.Context, p fsm.PartitionID, ds []fsm.Delivery) ([]fsm.Delivery, error) {
	kept := ds[:0]
	for i := range ds {
		d := ds[i]
		if len(d.Rest) > 0 {
			body, err := r.send.parts(ctx, p, d.Body, d.Rest)
			if errors.Is(err, errGone) {
				continue
			}
			if err != nil {
				return nil, err
			}
			d.Body, d.Rest = body, nil
		}
		kept = append(kept, d)
	}
	clear(ds[len(kept):])
	return kept, nil
}

func anyRest(ds []fsm.Delivery) bool {
	for i := range ds {
		if len(ds[i].Rest) > 0 {
			return true
		}
	}
	return false
}

// take completes what a command took. If its caller is gone, or nobody answers, what was locked is given
// back as it would be without bodies; what was removed when it was received can be had only here.
func (r *Router) take(ctx context.Context, p fsm.PartitionID, k fsm.Key, c fsm.Command, o *fsm.Outcome) error {
	if !anyRest(o.Locked) {
		return nil
	}
	var session fsm.SessionProof
	removed := false
	switch c := c.(type) {
	case *fsm.Lock:
		session, removed = c.Session, c.Delete
	case *fsm.Receive:
		session, removed = c.Session, c.Delete
	}
	if removed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
		defer cancel()
	}
	locked := append([]fsm.Delivery(nil), o.Locked...)
	whole, err := r.assemble(ctx, p, o.Locked)
	if err == nil {
		o.Locked = whole
		return nil
	}
	if removed {
		return err
	}
	back := &fsm.Settle{Session: session}
	for i := range locked {
		back.Items = append(back.Items, fsm.SettleItem{Seq: locked[i].Seq, Token: locked[i].Token,
			Verdict: fsm.Return})
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), replica.GoneWait)
	defer cancel()
	// If this fails, too, the locks run out.
	_, _ = r.send.propose(late, p, fsm.Request{Entity: k.Entity, Sub: k.Sub, Command: back}, &attempts{}, nil)
	return err
}

// parts reads the parts of one body behind its head.
func (s *sender) parts(ctx context.Context, p fsm.PartitionID, head []byte, rest []fsm.BodyRef) ([]byte, error) {
	size := len(head)
	for _, ref := range rest {
		size += int(ref.Length)
	}
	if f := s.large.Load(); f != nil {
		(*f)(size)
	}
	body := append(make([]byte, 0, size), head...)
	for len(rest) > 0 {
		n, bytes := 0, 0
		for n < len(rest) && (n == 0 || bytes+int(rest[n].Length) <= fetchBytes) {
			bytes += int(rest[n].Length)
			n++
		}
		had := len(body)
		var err error
		if body, err = s.read(ctx, p, body, rest[:n]); err != nil {
			return nil, err
		}
		if got := len(body) - had; got != bytes {
			return nil, fmt.Errorf("%w: %d bytes of a body of %d: %w", fsm.ErrUnavailable, got, bytes, fsm.ErrFormat)
		}
		rest = rest[n:]
	}
	return body, nil
}

// read appends stored parts to body, from here if there is a replica that has them, else from the leader.
func (s *sender) read(ctx context.Context, p fsm.PartitionID, body []byte, refs []fsm.BodyRef) ([]byte, error) {
	if local := s.host.Replica(p); local != nil {
		if whole, ok := local.AppendBodies(body, refs); ok {
			return whole, nil
		}
	}
	a, err := s.query(ctx, p, fsm.QueryRequest{Query: &fsm.ReadBody{Refs: refs}})
	switch {
	case err != nil:
		return nil, err
	case a.Refusal != fsm.None:
		return nil, errGone
	}
	return append(body, a.Data...), nil
}

// newUploadID draws the id of an upload.
func newUploadID() fsm.UploadID {
	b := replica.Chance()
	if id := fsm.UploadID(binary.LittleEndian.Uint64(b[:8])); id != 0 {
		return id
	}
	return 1
}

// complete reads what of an answer lies in parts. The error wraps errGone if something went away
// meanwhile: asked again, the state says what is there now.
func (r *Router) complete(ctx context.Context, p fsm.PartitionID, a *fsm.Answer, err error) (fsm.Answer, error) {
	if err != nil || len(a.Parts) == 0 && !anyRest(a.Messages) {
		return *a, err
	}
	if len(a.Parts) > 0 {
		if a.State, err = r.send.parts(ctx, p, nil, a.Parts); err != nil {
			return fsm.Answer{}, gone(err)
		}
		a.Parts = nil
	}
	for i := range a.Messages {
		d := &a.Messages[i]
		if len(d.Rest) == 0 {
			continue
		}
		if d.Body, err = r.send.parts(ctx, p, d.Body, d.Rest); err != nil {
			return fsm.Answer{}, gone(err)
		}
		d.Rest = nil
	}
	return *a, nil
}

func gone(err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, err)
	}
	return err
}
