package partition

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// pageBytes and pageUses close a page of a restore. A larger body goes alone.
	pageBytes = 192 << 10
	pageUses  = 512
	// pendingBytes bounds what all pages hold that are not closed yet.
	pendingBytes = 16 << 20
	// listUses bounds a page of ids, records or sessions.
	listUses = 512
)

// filler restores the content of one image. Bodies come in the order of their entries and not in that of messages. So
// each page has the messages of the bodies that were read. A share takes messages in any order.
type filler struct {
	d    *Directory
	r    *Restoring
	s    *fsm.State
	tell func(Progress)

	targets map[fsm.EntityID]*restoreTarget // by the id in the backup
	order   []*restoreTarget
	uses    map[fsm.BodyRef][]fsm.Place // by the reference to the body, or to its beginning
	parts   map[fsm.BodyRef]bodyPart
	empty   []fsm.Place // messages without a body
	pages   map[fsm.EntityID]*page
	pending int
}

// restoreTarget is where a share of the image goes.
type restoreTarget struct {
	old, made   *fsm.Descriptor
	share       int
	root        *restoreTarget // the topic of a subscription, else itself
	done, total uint64
}

func (t *restoreTarget) partition() fsm.PartitionID { return t.made.Partitions[t.share] }

// bodyPart is a part of a large body, or of a session state.
type bodyPart struct {
	to      *restoreTarget
	upload  fsm.Upload
	number  uint32
	session *fsm.RestoredSession // of a state, else nil
}

// page is a Restore that is being filled.
type page struct {
	to    *restoreTarget // a root
	c     fsm.Restore
	bytes int
	uses  int
	of    []*restoreTarget // parallel to the uses, for the progress
}

// plan finds out where everything goes.
func (f *filler) plan() {
	f.targets, f.uses, f.parts = map[fsm.EntityID]*restoreTarget{}, map[fsm.BodyRef][]fsm.Place{}, map[fsm.BodyRef]bodyPart{}
	here := map[fsm.EntityID]bool{}
	for _, e := range f.s.Described() {
		here[e.ID] = true
	}
	for i, old := range f.r.olds {
		share := slices.Index(old.Partitions, f.s.ID())
		if share < 0 || !here[old.ID] {
			continue // it has no share there, or was made when the image was captured already
		}
		t := &restoreTarget{old: old, made: f.r.Entities[i], share: share}
		t.root = t
		if top := f.targets[old.Parent]; old.Kind == fsm.Subscription && top != nil {
			t.root = top // topics come before their subscriptions
		}
		f.targets[old.ID] = t
		f.order = append(f.order, t)
	}
	for _, t := range f.order {
		f.s.EachPlace(t.old.ID, func(ref fsm.BodyRef, rest []fsm.BodyRef, at fsm.Place) {
			t.total++
			if ref.Length == 0 {
				f.empty = append(f.empty, at)
				return
			}
			if f.uses[ref] == nil && len(rest) > 0 {
				up := uploadOf(ref, rest)
				for n, part := range rest {
					f.parts[part] = bodyPart{to: t.root, upload: up, number: uint32(n)}
				}
			}
			f.uses[ref] = append(f.uses[ref], at)
		})
		f.s.EachSession(t.old.ID, func(in fsm.RestoredSession, rest []fsm.BodyRef) {
			if len(rest) == 0 {
				return
			}
			in.Parts = uploadOf(rest[0], rest)
			for n, part := range rest {
				f.parts[part] = bodyPart{to: t, upload: in.Parts, number: uint32(n), session: &in}
			}
		})
	}
}

// uploadOf names the upload of parts by the place of their body. A repeated restore uses the same name, so it goes on with
// what is staged.
func uploadOf(ref fsm.BodyRef, parts []fsm.BodyRef) fsm.Upload {
	up := fsm.Upload{ID: fsm.UploadID(ref.Index<<24 ^ uint64(ref.Offset) + 1), Parts: uint32(len(parts))}
	for _, p := range parts {
		up.Bytes += p.Length
	}
	return up
}

// fill restores everything: counters, messages with their bodies, and then what refers to them.
func (f *filler) fill(ctx context.Context, from io.Reader, bodies BodyReader) error {
	for _, t := range f.order {
		if err := f.put(ctx, t, &fsm.Restore{Step: fsm.RestoreBegin, Counters: f.counters(t)}); err != nil {
			return err
		}
		f.progress(t)
	}
	for _, at := range f.empty {
		if err := f.add(ctx, fsm.Message{}, []fsm.Place{at}); err != nil {
			return err
		}
	}
	w := wantedBodies(f.s)
	if err := bodies(from, func(index uint64, offset uint32, body []byte) error {
		return w.take(index, offset, body, func(ref fsm.BodyRef, b []byte) error { return f.body(ctx, ref, b) })
	}); err != nil {
		return fmt.Errorf("bodies of partition %d: %w", f.s.ID(), err)
	}
	if err := w.end(); err != nil {
		return fmt.Errorf("bodies of partition %d: %w", f.s.ID(), err)
	}
	if err := f.flushAll(ctx); err != nil {
		return err
	}
	for _, t := range f.order {
		if err := f.lists(ctx, t); err != nil {
			return err
		}
		if err := f.compare(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// counters are those of a share. One entity alone begins its moves anew.
func (f *filler) counters(t *restoreTarget) fsm.ShareCounters {
	n := f.s.CountersOf(t.old.ID)
	if f.r.alone {
		clear(n.Moves[:])
	}
	return n
}

func (f *filler) put(ctx context.Context, t *restoreTarget, c *fsm.Restore) error {
	if err := f.d.putBackInto(ctx, t.partition(), t.made.ID, c); err != nil {
		return fmt.Errorf("restore %q, share %d in partition %d: %w", t.made.Name, t.share, t.partition(), err)
	}
	return nil
}

// body restores one body, which is used again when this returns.
func (f *filler) body(ctx context.Context, ref fsm.BodyRef, b []byte) error {
	if part, ok := f.parts[ref]; ok {
		c := &fsm.BodyPart{Upload: part.upload.ID, Number: part.number, Body: b}
		if err := f.d.putBackInto(ctx, part.to.partition(), part.to.made.ID, c); err != nil {
			return fmt.Errorf("restore a part of a large body of %q: %w", part.to.made.Name, err)
		}
		if part.session != nil && part.number+1 == part.upload.Parts {
			state := *part.session
			state.Rest = 0
			return f.put(ctx, part.to, &fsm.Restore{Step: fsm.RestorePage, Sessions: []fsm.RestoredSession{state}})
		}
		return nil
	}
	places := f.uses[ref]
	if len(places) == 0 {
		return nil // of an entity that is not restored, or of a remembered answer
	}
	m := fsm.Message{Body: slices.Clone(b)}
	if _, rest := f.s.Whole(ref); len(rest) > 0 {
		m.Rest = uploadOf(ref, rest)
	}
	return f.add(ctx, m, places)
}

// add puts a body with its uses into the page of its root, and closes pages that are full.
func (f *filler) add(ctx context.Context, m fsm.Message, places []fsm.Place) error {
	root := f.targets[places[0].Entity].root
	p := f.pages[root.made.ID]
	if p == nil {
		p = &page{to: root, c: fsm.Restore{Step: fsm.RestorePage}}
		f.pages[root.made.ID] = p
	}
	if p.uses > 0 && (p.uses+len(places) > pageUses || p.bytes+len(m.Body) > pageBytes) {
		if err := f.flush(ctx, p); err != nil {
			return err
		}
	}
	uses := make([]fsm.BodyUse, 0, len(places))
	for _, at := range places {
		t := f.targets[at.Entity]
		uses = append(uses, f.use(t, at))
		p.of = append(p.of, t)
	}
	p.c.Bodies, p.c.Uses = append(p.c.Bodies, m), append(p.c.Uses, uses)
	p.uses += len(uses)
	p.bytes += len(m.Body)
	f.pending += len(m.Body)
	if m.Rest.ID != 0 { // its parts are not to be staged for longer than need be
		return f.flush(ctx, p)
	}
	if f.pending > pendingBytes {
		return f.flushAll(ctx)
	}
	return nil
}

// use is what is at a place, in the words of the new cluster.
func (f *filler) use(t *restoreTarget, at fsm.Place) fsm.BodyUse {
	u := f.s.Use(at)
	u.Entity = t.made.ID
	m := &u.Message
	if m.To != 0 {
		m.To = f.entity(m.To)
	}
	switch {
	case m.Transit == 0:
	case f.r.alone: // its destination may have it, and nobody can tell: it is moved anew
		m.Transit, m.TransitTo = 0, 0
	case m.TransitTo != 0:
		m.TransitTo = f.entity(m.TransitTo)
	}
	return u
}

// nowhere is an id that the catalog never gives: what goes there is refused with EntityNotFound.
const nowhere fsm.EntityID = 1 << 62

// entity returns the id that an entity of the backup has now.
func (f *filler) entity(old fsm.EntityID) fsm.EntityID {
	for i, e := range f.r.olds {
		if e.ID == old {
			return f.r.Entities[i].ID
		}
	}
	if id, there := f.r.elsewhere[old]; there {
		return id
	}
	return nowhere
}

// flush proposes a page.
func (f *filler) flush(ctx context.Context, p *page) error {
	if p.uses == 0 {
		return nil
	}
	if err := f.put(ctx, p.to, &p.c); err != nil {
		return err
	}
	told := map[*restoreTarget]bool{}
	for _, t := range p.of {
		t.done++
		told[t] = true
	}
	for _, t := range f.order {
		if told[t] {
			f.progress(t)
		}
	}
	f.pending -= p.bytes
	*p = page{to: p.to, c: fsm.Restore{Step: fsm.RestorePage}}
	return nil
}

func (f *filler) progress(t *restoreTarget) {
	f.tell(Progress{Share: fmt.Sprintf("%s/%d", t.made.Name, t.share), Restored: t.done, Total: t.total})
}

func (f *filler) flushAll(ctx context.Context) error {
	for _, t := range f.order {
		if p := f.pages[t.made.ID]; p != nil {
			if err := f.flush(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// lists restores what a share has beside messages.
func (f *filler) lists(ctx context.Context, t *restoreTarget) error {
	id := t.old.ID
	c, n := &fsm.Restore{Step: fsm.RestorePage}, 0
	var failed error
	more := func(bytes int) {
		if n += 1 + bytes/128; n >= listUses && failed == nil {
			failed = f.put(ctx, t, c)
			c, n = &fsm.Restore{Step: fsm.RestorePage}, 0
		}
	}
	f.s.EachSession(id, func(in fsm.RestoredSession, parts []fsm.BodyRef) {
		if len(parts) > 0 { // its state came with its parts
			in.HasState = false
		}
		c.Sessions = append(c.Sessions, in)
		more(len(in.State) + len(in.ID))
	})
	f.s.EachID(id, func(in fsm.RestoredID) { c.IDs = append(c.IDs, in); more(0) })
	f.s.EachRecord(id, func(in fsm.RestoredRecord) {
		c.Records = append(c.Records, in)
		more(len(in.MessageID) + len(in.SessionID))
	})
	if !f.r.alone {
		f.s.EachOrigin(id, func(in fsm.RestoredOrigin) {
			if in, ok := f.origin(in); ok {
				c.Origins = append(c.Origins, in)
				more(8 * len(in.Decided))
			}
		})
	}
	if failed != nil || n == 0 {
		return failed
	}
	return f.put(ctx, t, c)
}

// origin is an origin under the ids of the new cluster. A source that is not restored sends nothing any more.
func (f *filler) origin(in fsm.RestoredOrigin) (fsm.RestoredOrigin, bool) {
	for i, e := range f.r.olds {
		origins := e.Partitions
		if len(e.Origins) > 0 { // a share moved: others know it by its first partition
			origins = e.Origins
		}
		if share := slices.Index(origins, in.Partition); e.ID == in.Entity && share >= 0 {
			in.Entity, in.Partition = f.r.Entities[i].ID, f.r.Entities[i].Partitions[share]
			return in, true
		}
	}
	return in, false
}

// compare asks a restored share for its counters, and compares them with those of the image. A lock is not restored.
func (f *filler) compare(ctx context.Context, t *restoreTarget) error {
	a, err := f.d.send.query(ctx, t.partition(), fsm.QueryRequest{Entity: t.made.ID, Query: &fsm.Counts{}})
	if err != nil {
		return err
	}
	want := f.s.Query(fsm.QueryRequest{Entity: t.old.ID, Query: &fsm.Counts{}}).Counts
	got := a.Counts
	want.Locked = 0
	// A session that only a holder kept alive ends with its lock, and staged bodies end with the backup.
	want.Sessions, want.SizeBytes = got.Sessions, got.SizeBytes
	if a.Refusal != fsm.None || got != want {
		return fmt.Errorf("restore %q, share %d: it counts %+v, the image %+v", t.made.Name, t.share, got, want)
	}
	return nil
}
