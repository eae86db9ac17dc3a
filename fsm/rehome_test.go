package fsm

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
)

// moveOf has the share of an entity in one partition become that of another one, step by step. Each step is done
// twice. The new home is restored from an image of its own behind each.
type moveOf struct {
	from, to *driver
	id       EntityID
	epoch    uint64
	piece    int // bytes of a piece of the image
}

func newHome(t testing.TB, p PartitionID) *driver {
	to := newDriver(t)
	to.s = New(p)
	for range 7 { // the two partitions have other indexes, and clocks of their own
		to.lead()
	}
	return to
}

func (m *moveOf) at(d *driver, c *Rehome) {
	d.tb.Helper()
	for range 2 {
		d.ok(m.id, Main, c)
		if err := d.s.CheckInvariants(); err != nil {
			d.tb.Fatalf("behind step %d: %v", c.Step, err)
		}
		if err := d.s.Restore(bytes.NewReader(imageOf(d.tb, d.s))); err != nil {
			d.tb.Fatalf("behind step %d: %v", c.Step, err)
		}
	}
}

// bodies stages the bodies that the share has now.
func (m *moveOf) bodies() {
	img, ok := m.from.s.CaptureShare(m.id, 0)
	if !ok {
		m.from.tb.Fatal("the share has no image")
	}
	img.EachBody(func(ref BodyRef) {
		m.at(m.to, &Rehome{Step: RehomeBodies, Epoch: m.epoch, Places: []BodyRef{ref},
			Bodies: []Message{{Body: bytes.Repeat([]byte{'b'}, int(ref.Length))}}})
	})
}

// image sends the image of the closed share, and seals it.
func (m *moveOf) image() []byte {
	tb := m.from.tb
	tb.Helper()
	img, ok := m.from.s.CaptureShare(m.id, m.epoch)
	if !ok || !img.Closed {
		tb.Fatal("the closed share has no image")
	}
	var whole, again bytes.Buffer
	if _, err := img.WriteTo(&whole); err != nil {
		tb.Fatal(err)
	}
	m.from.after(1234) // a closed share is the same as often as it is read
	m.from.apply(Request{Command: &Tick{}}, Request{Command: &NodeLost{Node: Incarnation(m.from.index)}})
	img, _ = m.from.s.CaptureShare(m.id, m.epoch)
	if _, err := img.WriteTo(&again); err != nil || !bytes.Equal(whole.Bytes(), again.Bytes()) {
		tb.Fatalf("another image of a closed share, %v", err)
	}
	for at := 0; at < whole.Len(); at += m.piece {
		m.at(m.to, &Rehome{Step: RehomeImage, Epoch: m.epoch, At: uint64(at),
			Image: whole.Bytes()[at:min(at+m.piece, whole.Len())]})
	}
	m.at(m.to, &Rehome{Step: RehomeSeal, Epoch: m.epoch, Size: uint64(whole.Len()),
		Sum: crc32.Checksum(whole.Bytes(), castagnoli)})
	return whole.Bytes()
}

// open tells the new home that the share is there.
func (m *moveOf) open(version uint64) {
	m.to.tb.Helper()
	sh, _ := m.to.s.shares.Get(m.id)
	d := *sh.d
	d.Version = version
	m.to.ok(0, Main, &PutEntity{Descriptor: d})
}

// moved moves a share whole.
func moved(from, to *driver, id EntityID, epoch uint64) {
	m := &moveOf{from: from, to: to, id: id, epoch: epoch, piece: 500}
	m.bodies()
	m.at(from, &Rehome{Step: RehomeClose, Epoch: epoch})
	m.bodies()
	m.image()
	m.open(1000 + epoch)
	m.at(from, &Rehome{Step: RehomeLeave, Epoch: epoch})
}

// withMoves has a state hold shares in every phase.
func withMoves(t testing.TB, d *driver) {
	d.ok(0, Main, queue(91))
	d.ok(91, Main, messages(2))
	d.ok(91, Main, &Rehome{Step: RehomeClose, Epoch: 5})
	for id := EntityID(92); id < 95; id++ {
		from := newHome(t, 2)
		from.ok(0, Main, queue(id, func(d *Descriptor) { d.Partitions = []PartitionID{2} }))
		from.ok(id, Main, messages(3))
		m := &moveOf{from: from, to: d, id: id, epoch: 6, piece: 100}
		m.bodies()
		if id == 92 {
			d.ok(id, Main, &Rehome{Step: RehomeImage, Epoch: 6, Image: []byte("piece")})
			continue
		}
		m.at(from, &Rehome{Step: RehomeClose, Epoch: 6})
		m.image()
		if id == 94 {
			m.open(9)
			d.ok(id, Main, &Rehome{Step: RehomeClose, Epoch: 7})
			d.ok(id, Main, &Rehome{Step: RehomeLeave, Epoch: 7})
		}
	}
}

// Everything that a share holds is at its new home: compared record by record, under the clocks of the new home.
func TestAShareThatMovedHoldsWhatItHeld(t *testing.T) {
	from := populated(t)
	to := newHome(t, 3)
	freed := map[BodyRef]int{}
	from.freed = func(ref BodyRef) { freed[ref]++ }
	for _, e := range from.s.Described() {
		if e.Kind != Queue {
			if o := from.do(e.ID, Main, &Rehome{Step: RehomeClose, Epoch: 1}); o.Refusal != InvalidOperation {
				t.Errorf("kind %d: %+v", e.Kind, o)
			}
			continue
		}
		was := records(t, from.s, e.ID)
		moved(from, to, e.ID, 100+uint64(e.ID))
		if now := records(t, to.s, e.ID); now != was {
			t.Errorf("entity %d at its new home:\n%s\nat its old one:\n%s", e.ID, linesNotIn(now, was), linesNotIn(was, now))
		}
		for _, at := range []*driver{from, to} {
			if err := at.s.CheckInvariants(); err != nil {
				t.Fatalf("entity %d: %v", e.ID, err)
			}
		}
	}
	from.after(resultTime)
	for range 3 {
		from.apply(Request{Command: &Tick{}})
	}
	there := map[BodyRef]bool{}
	from.s.EachBody(func(ref BodyRef) { there[ref] = true })
	for ref, n := range freed {
		if ref.Length > 0 && (n != 1 || there[ref]) {
			t.Errorf("body %v was freed %d times, and is there: %v", ref, n, there[ref])
		}
	}
	for _, e := range from.s.Described() {
		sh, _ := from.s.shares.Get(e.ID)
		if e.Kind == Queue && (sh.arrival != 0 || sh.home.phase != left || sh.size != 0) {
			t.Errorf("entity %d: its old home holds %d bytes", e.ID, sh.size)
		}
	}
	if err := from.s.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// records tells what a share holds, with lease times as what is left of them and without the places of bodies.
func records(t *testing.T, s *State, id EntityID) string {
	t.Helper()
	one := New(9)
	one.gen = s.gen + 1
	sh, _ := s.shares.Get(id)
	now := s.lease
	if sh.home.phase == closed {
		now = sh.home.lease
	}
	var b strings.Builder
	add := func(parts ...any) {
		for _, p := range parts {
			b.WriteString(strings.ReplaceAll(strings.TrimSpace(reflectText(p)), "\n", " "))
			b.WriteByte(' ')
		}
		b.WriteByte('\n')
	}
	rest := func(at Lease) Millis {
		if at == 0 {
			return 0
		}
		return at.Since(now)
	}
	add("counters", sh.prefix, sh.arrival, sh.size, sh.touched, sh.drops, sh.lastNo, sh.lastTicket, sh.starved, sh.lastTransfer, sh.refusedTo,
		rest(sh.idleReview))
	for k := range sh.history {
		add("history", sh.history[k].last, sh.history[k].size, sh.history[k].bodies)
		sh.history[k].records.Scan(func(_ uint64, p *past) bool {
			r := p.HistoryRecord
			r.Ref.Index, r.Ref.Offset = 0, 0
			add("record", r, p.arrival)
			return true
		})
	}
	for sub := range sh.boxes {
		box := &sh.boxes[sub]
		add("moves", sh.moves[sub].last)
		sh.moves[sub].table.Scan(func(n uint64, mv moving) bool { add("moving", n, mv); return true })
		box.messages.Scan(func(arrival uint64, m message) bool {
			l, _ := box.locks.Get(arrival)
			l.deadline = Lease(rest(l.deadline))
			paused, _ := box.paused.Get(arrival)
			name, _ := sh.names.Get(arrival)
			origin, _ := sh.firsts.Get(arrival)
			ref := m.ref()
			d := Delivery{Ref: ref}
			s.whole(&d)
			m.index, m.offset = 0, 0
			add("message", sub, arrival, m, l, rest(paused), name, origin, *box.extra(arrival, &m), d.Ref.Length, len(d.Rest))
			return true
		})
		box.ready.Scan(func(k placeKey) bool { add("ready", k); return true })
	}
	sh.sessions.Scan(func(no uint32, se *session) bool {
		h, _ := sh.holders.Get(no)
		st, _ := sh.states.Get(no)
		p, _ := sh.parted.Get(no)
		pause, _ := sh.pauses.Get(no)
		shared := sharing{}
		if h.shared != nil {
			shared = *h.shared
			shared.former.until = Lease(rest(shared.former.until))
		}
		sw, _ := sh.sweeps.Get(no)
		add("session", no, se.id, se.ticket, se.ready, se.locked(), se.messages, h.token, rest(h.deadline), h.node, shared, st, p.bytes,
			rest(pause), sw)
		return true
	})
	sh.spared.Scan(func(k placeKey) bool { add("spared", k); return true })
	sh.seenOrder.Scan(func(order uint64, h idHash) bool {
		e, _ := sh.seen.Get(seen{hash: h})
		add("seen", e)
		return true
	})
	sh.uploads.Scan(func(up UploadID, u upload) bool { add("upload", up, u.bytes, len(u.parts), rest(u.until)); return true })
	sh.origins.Scan(func(o origin) bool { add("origin", o); return true })
	sh.decided.Scan(func(e decided) bool { add("decided", e); return true })
	return b.String()
}

func reflectText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return strings.TrimPrefix(reflect.TypeOf(v).String(), "fsm.") + "=" + sprint(v)
}

func sprint(v any) string { return fmt.Sprintf("%+v", v) }

// linesNotIn are the lines of a that b does not have.
func linesNotIn(a, b string) string {
	var out []string
	for line := range strings.Lines(a) {
		if !strings.Contains(b, line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// A share that is closed takes nothing, time does nothing in it, and an answer that was given is given again. Whoever
// waits is woken.
func TestAClosedShareTakesNothing(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, withSessions))
	d.ok(7, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "s", Body: []byte("a")}, {HasSession: true,
		SessionID: "s", ScheduledAt: d.wall + 1000}}})
	id := RequestID{5, 6, 7}
	first := d.apply(Request{ID: id, Entity: 7, Command: &AcceptSession{ID: "s"}}).Outcomes[0]
	locked := d.ok(7, Main, &Lock{Session: first.Session, Max: 1}).Locked
	d.ok(7, Main, &Rehome{Step: RehomeClose, Epoch: 9})
	wakes := map[WaitKey]bool{}
	for _, k := range d.last.Wake {
		wakes[k] = true
	}
	for _, k := range []WaitKey{{Entity: 7, Kind: WaitMessage}, {Entity: 7, Kind: WaitSession}, {Entity: 7, Sub: DeadLetter, Kind: WaitMessage},
		{Entity: 7, Kind: WaitMessage, HasSession: true, Session: "s"}, {Entity: 7, Kind: WaitLost, HasSession: true, Session: "s"},
		{Entity: 7, Sub: TransferQueue, Kind: WaitMessage}} {
		if !wakes[k] || !d.s.Deliverable(k) {
			t.Errorf("who waits for %+v was not woken", k)
		}
	}
	was := records(t, d.s, 7)
	d.after(600_000 - 1)
	d.apply(Request{Command: &Tick{Listeners: []EntityID{7}}}, Request{Command: &NodeLost{Node: 6}})
	for name, c := range goldenCommands() {
		switch c.(type) {
		case *PutEntity, *DropEntity, *Rehome, *NodeLost, *DropPumps, *Tick, *Barrier, *BecomeLeader, *HoldForwards, *Commit:
			continue
		}
		if o := d.do(7, Main, c); o.Refusal != Stale {
			t.Errorf("%s: %v", name, o.Refusal)
		}
	}
	commit := &Commit{Ops: []Op{{Entity: 7, Command: settle(locked[0].Token, Complete)}}}
	if o := d.do(0, Main, commit); o.Refusal != Stale {
		t.Errorf("a transaction: %+v", o)
	}
	if a := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}); a.Refusal != Stale {
		t.Errorf("counts: %+v", a)
	}
	d.ok(0, Main, queue(7, withSessions, func(d *Descriptor) { d.Version, d.Status = 5, Disabled }))
	if o := d.apply(Request{ID: id, Entity: 7, Command: &AcceptSession{ID: "s"}}).Outcomes[0]; !o.Repeated || o.Session != first.Session {
		t.Errorf("the answer that was given: %+v", o)
	}
	if now := records(t, d.s, 7); now != was {
		t.Errorf("the closed share has changed:\n%s\nwas\n%s", linesNotIn(now, was), linesNotIn(was, now))
	}
	if wall, lease := d.s.NextDeadline(); wall != 0 || lease == 0 || lease > d.lease.After(resultTime) {
		t.Errorf("deadlines %d, %d: only answers are forgotten", wall, lease)
	}
	d.ok(7, Main, &Rehome{Step: RehomeReopen, Epoch: 9})
	d.apply(Request{Command: &Tick{}})
	if a := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}); a.Refusal != None || a.Counts.Active != 2 || a.Counts.Locked != 0 {
		t.Errorf("what was due is not done: %+v", a)
	}
	if o := d.do(7, Main, &Rehome{Step: RehomeClose, Epoch: 9}); o.Refusal != InvalidOperation {
		t.Errorf("an epoch that was given up: %+v", o)
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// The rest of a lock is at the new home what it was at the old one, whatever the clocks there. Numbers and tokens of a
// partitioned queue carry the partition that the share was in first.
func TestLocksAndNumbersMoveWithTheirShare(t *testing.T) {
	from, to := newDriver(t), newHome(t, 3)
	from.after(100_000)
	to.after(7)
	put := queue(7, func(d *Descriptor) { d.Partitioned, d.Partitions, d.DetectDuplicates = true, []PartitionID{4, 1}, true })
	put.Descriptor.DuplicateWindow = 60_000
	from.ok(0, Main, put)
	from.ok(7, Main, identified("a", "b", "c", "d"))
	got := from.ok(7, Main, &Lock{Max: 3}).Locked
	from.ok(7, Main, settle(got[1].Token, Defer))
	from.after(2000)
	moved(from, to, 7, 20)
	sh, _ := to.s.shares.Get(7)
	if sh.prefix != 1 || !reflect.DeepEqual(sh.d.Partitions, []PartitionID{4, 3}) || !reflect.DeepEqual(sh.d.Prefixes, []PartitionID{4, 1}) {
		t.Fatalf("prefix %d, partitions %v, prefixes %v", sh.prefix, sh.d.Partitions, sh.d.Prefixes)
	}
	for _, home := range []*driver{from, to} {
		if origin, ok := home.s.OriginOf(7); origin != 1 || !ok {
			t.Errorf("its origin is %d, %v", origin, ok)
		}
	}
	if _, ok := to.s.OriginOf(8); ok {
		t.Error("a share that is not there has an origin")
	}
	if o := to.ok(7, Main, identified("d", "e")); o.Numbers[0] != 0 || o.Numbers[1] != 1<<48|5 {
		t.Errorf("a duplicate and the next number: %v", o.Numbers)
	}
	if o := to.ok(7, Main, &Receive{Numbers: []SequenceNumber{got[1].Seq}}); len(o.Locked) != 1 {
		t.Errorf("deferred: %+v", o)
	}
	to.after(2999)
	if o := to.ok(7, Main, settle(got[0].Token, Complete)); o.Refusals[0] != None {
		t.Errorf("settled with the rest of its lock: %+v", o)
	}
	to.after(1)
	if o := to.ok(7, Main, settle(got[2].Token, Complete)); o.Refusals[0] != MessageLockLost {
		t.Errorf("settled behind the end of its lock: %+v", o)
	}
	back := newHome(t, 1)
	back.s, back.index, back.epoch, back.wall, back.lease = from.s, from.index, from.epoch, from.wall, from.lease
	if o := back.do(7, Main, &Rehome{Step: RehomeBodies, Epoch: 30}); o.Refusal != Busy {
		t.Errorf("the old home holds it still: %+v", o)
	}
	back.after(resultTime)
	for range 2 {
		back.apply(Request{Command: &Tick{}})
	}
	moved(to, back, 7, 30)
	sh, _ = back.s.shares.Get(7)
	if origin, _ := back.s.OriginOf(7); sh.prefix != 1 || origin != 1 {
		t.Errorf("back at its first home: prefix %d, origin %d", sh.prefix, origin)
	}
}

// A step of a move that is over, or that comes out of order, changes nothing.
func TestStepsOutOfOrderAreRefused(t *testing.T) {
	from, to := newDriver(t), newHome(t, 3)
	from.ok(0, Main, queue(7, func(d *Descriptor) { d.Version = 4 }))
	from.ok(7, Main, messages(2))
	m := &moveOf{from: from, to: to, id: 7, epoch: 20, piece: 1 << 20}
	wants := func(d *driver, want Refusal, c *Rehome) {
		t.Helper()
		if o := d.do(7, Main, c); o.Refusal != want {
			t.Errorf("step %d of %d: %v %s, want %v", c.Step, c.Epoch, o.Refusal, o.Detail, want)
		}
		if err := d.s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	for step := RehomeClose; step <= RehomeDiscard; step++ {
		wants(from, InvalidArgument, &Rehome{Step: step})
	}
	wants(to, Stale, &Rehome{Step: RehomeClose, Epoch: 20})
	wants(from, InvalidOperation, &Rehome{Step: RehomeLeave, Epoch: 20})
	wants(from, InvalidOperation, &Rehome{Step: RehomeBodies, Epoch: 20})
	wants(to, InvalidOperation, &Rehome{Step: RehomeSeal, Epoch: 20, Size: 5})
	m.bodies()
	wants(to, InvalidOperation, &Rehome{Step: RehomeBodies, Epoch: 19})
	wants(to, InvalidArgument, &Rehome{Step: RehomeBodies, Epoch: 20, Bodies: []Message{{Body: []byte("a")}}})
	wants(to, InvalidArgument, &Rehome{Step: RehomeImage, Epoch: 20, At: 1, Image: []byte("a")})
	from.ok(7, Main, messages(1))
	m.at(from, &Rehome{Step: RehomeClose, Epoch: 20})
	wants(from, InvalidOperation, &Rehome{Step: RehomeClose, Epoch: 21})
	wants(from, InvalidOperation, &Rehome{Step: RehomeReopen, Epoch: 19})
	img, _ := from.s.CaptureShare(7, 20)
	var b bytes.Buffer
	if _, err := img.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	sum := crc32.Checksum(b.Bytes(), castagnoli)
	to.ok(7, Main, &Rehome{Step: RehomeImage, Epoch: 20, Image: b.Bytes()})
	wants(to, InvalidOperation, &Rehome{Step: RehomeSeal, Epoch: 20, Size: uint64(b.Len()), Sum: sum + 1})
	wants(to, InvalidArgument, &Rehome{Step: RehomeSeal, Epoch: 20, Size: uint64(b.Len()), Sum: sum}) // a body is missing
	m.bodies()
	to.ok(0, Main, queue(8, func(d *Descriptor) { d.Partitions = []PartitionID{3} }))
	if o := to.do(8, Main, &Rehome{Step: RehomeSeal, Epoch: 20}); o.Refusal != InvalidOperation {
		t.Errorf("an entity that is at home: %+v", o)
	}
	m.image()
	wants(to, InvalidOperation, &Rehome{Step: RehomeLeave, Epoch: 20})
	wants(to, None, &Rehome{Step: RehomeBodies, Epoch: 20, Bodies: []Message{{Body: []byte("late")}}, Places: []BodyRef{{Index: 1}}})
	wants(to, None, &Rehome{Step: RehomeDiscard, Epoch: 19})
	if o := to.do(7, Main, messages(1)); o.Refusal != Stale {
		t.Errorf("a share that is not served yet: %+v", o)
	}
	if known := to.s.Known(); known[0] != (KnownEntity{ID: 7, Version: 4, Arriving: 20}) {
		t.Errorf("known: %+v", known)
	}
	for version, want := range map[uint64]Refusal{3: Stale, 4: Stale} { // order-free: neither serves it
		to.ok(0, Main, queue(7, func(d *Descriptor) { d.Version, d.Partitions = version, []PartitionID{3} }))
		if o := to.do(7, Main, messages(1)); o.Refusal != want {
			t.Errorf("served because of an old description, %d: %+v", version, o)
		}
	}
	m.open(5)
	if o := to.ok(7, Main, messages(1)); o.Numbers[0] != 4 {
		t.Errorf("the next number is %v", o.Numbers)
	}
	wants(to, None, &Rehome{Step: RehomeDiscard, Epoch: 20})
	wants(to, InvalidOperation, &Rehome{Step: RehomeImage, Epoch: 20, Image: []byte("a")})
	from.ok(7, Main, &Rehome{Step: RehomeLeave, Epoch: 20})
	wants(from, InvalidOperation, &Rehome{Step: RehomeReopen, Epoch: 20})
	from.ok(0, Main, queue(7, func(d *Descriptor) { d.Version = 9 }))
	if o := from.do(7, Main, messages(1)); o.Refusal != Stale {
		t.Errorf("served at both homes: %+v", o)
	}
	if counts := to.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}).Counts; counts.Active != 4 {
		t.Errorf("%+v", counts)
	}
}

// What was staged is freed when a move is given up, when a later one begins, and when the entity is deleted.
func TestWhatArrivedInVainIsFreed(t *testing.T) {
	from := newDriver(t)
	from.ok(0, Main, queue(7))
	from.ok(7, Main, messages(3))
	from.ok(7, Main, &Rehome{Step: RehomeClose, Epoch: 20})
	for name, end := range map[string]func(to *driver){
		"given up":       func(to *driver) { to.ok(7, Main, &Rehome{Step: RehomeDiscard, Epoch: 20}) },
		"a later move":   func(to *driver) { to.do(7, Main, &Rehome{Step: RehomeBodies, Epoch: 21}) },
		"it was deleted": func(to *driver) { to.ok(7, Main, &DropEntity{}) },
	} {
		for _, sealed := range []bool{false, true} {
			to := newHome(t, 3)
			freed := 0
			to.freed = func(ref BodyRef) { freed++ }
			m := &moveOf{from: from, to: to, id: 7, epoch: 20, piece: 64}
			m.bodies()
			if sealed {
				m.image()
			}
			freed = 0
			end(to)
			to.apply(Request{Command: &Tick{}})
			n := 0
			to.s.EachBody(func(BodyRef) { n++ })
			if freed != 3 || n != 0 || to.s.CheckInvariants() != nil {
				t.Errorf("%s, sealed %v: %d bodies were freed, %d are there", name, sealed, freed, n)
			}
		}
	}
}

// A holder whose node was declared lost while the share was closed holds nothing at the new home.
func TestANodeThatIsLostMeanwhileHoldsNothing(t *testing.T) {
	from, to := newDriver(t), newHome(t, 3)
	from.ok(0, Main, queue(7, withSessions))
	from.ok(7, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "s"}, {HasSession: true, SessionID: "t"}}})
	for _, id := range []string{"s", "t"} {
		from.apply(Request{ID: RequestID{Incarnation(id[0]), 6, 7}, Entity: 7, Command: &AcceptSession{ID: id}})
	}
	to.apply(Request{Command: &NodeLost{Node: 's'}})
	moved(from, to, 7, 20)
	if o := to.ok(7, Main, &AcceptSession{Next: true}); o.Session.ID != "s" {
		t.Errorf("the session of the lost node: %+v", o)
	}
	if o := to.do(7, Main, &AcceptSession{ID: "t"}); o.Refusal != SessionCannotBeLocked {
		t.Errorf("the session of the other: %+v", o)
	}
}

// A holder whose node was declared lost while the share was closed holds nothing when the move is given up, either.
func TestANodeThatIsLostHoldsNothingInAShareThatStays(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, withSessions))
	d.ok(7, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "s"}, {HasSession: true, SessionID: "t"}}})
	for _, id := range []string{"s", "t"} {
		d.apply(Request{ID: RequestID{Incarnation(id[0]), 6, 7}, Entity: 7, Command: &AcceptSession{ID: id}})
	}
	d.ok(7, Main, &Rehome{Step: RehomeClose, Epoch: 20})
	d.apply(Request{Command: &NodeLost{Node: 's'}})
	d.ok(7, Main, &Rehome{Step: RehomeReopen, Epoch: 20})
	if o := d.ok(7, Main, &AcceptSession{Next: true}); o.Session.ID != "s" {
		t.Errorf("the session of the lost node: %+v", o)
	}
	if o := d.do(7, Main, &AcceptSession{ID: "t"}); o.Refusal != SessionCannotBeLocked {
		t.Errorf("the session of the other: %+v", o)
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// What is left of a share at a former home outlasts a move back that is given up: an old description that comes late
// makes no new share.
func TestAFormerHomeOutlastsAMoveBackInVain(t *testing.T) {
	from, to := newDriver(t), newHome(t, 3)
	from.ok(0, Main, queue(7))
	from.ok(7, Main, messages(2))
	moved(from, to, 7, 20)
	from.after(resultTime)
	for range 2 {
		from.apply(Request{Command: &Tick{}})
	}
	m := &moveOf{from: to, to: from, id: 7, epoch: 30, piece: 500}
	m.bodies()
	m.at(to, &Rehome{Step: RehomeClose, Epoch: 30})
	m.image()
	m.at(to, &Rehome{Step: RehomeReopen, Epoch: 30})
	m.at(from, &Rehome{Step: RehomeDiscard, Epoch: 30})
	for range 2 {
		from.apply(Request{Command: &Tick{}})
	}
	from.ok(0, Main, queue(7))
	if o := from.do(7, Main, messages(1)); o.Refusal != Stale {
		t.Errorf("served at both homes: %+v", o)
	}
	moved(to, from, 7, 40)
	if counts := from.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}).Counts; counts.Active != 2 {
		t.Errorf("behind a later move: %+v", counts)
	}
}
