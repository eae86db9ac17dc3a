package fsm

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// S-360: while a hold is in force nothing is taken for a move, and no move is done with. The hold is in the image, so
// every replica and every later leader has it.
func TestAHoldStopsForwards(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.ForwardTo = "elsewhere" }))
	d.ok(7, Main, messages(3))
	if o := d.ok(7, Main, &Forward{Epoch: d.epoch, To: 9, Max: 1}); len(o.Moves) != 1 {
		t.Fatalf("%+v", o)
	}
	d.ok(0, Main, &HoldForwards{Hold: 5, For: 5000})
	forward := &Forward{Epoch: d.epoch, Done: []Moved{{Number: 1}}, To: 9, Max: 1}
	for range 2 {
		if o := d.do(7, Main, forward); o.Refusal != Busy {
			t.Fatalf("forward under a hold: %+v", o)
		}
		img := imageOf(t, d.s)
		if err := d.s.Restore(bytes.NewReader(img)); err != nil || d.s.Holding() != 5 {
			t.Fatalf("restored: hold %d, %v", d.s.Holding(), err)
		}
		d.lead()
		forward.Epoch = d.epoch
	}
	a := d.s.Query(QueryRequest{Entity: 7, Query: &Moving{Max: 9}})
	if len(a.Moves) != 1 || a.Moves[0].Number != 1 {
		t.Fatalf("in transit under a hold: %+v", a)
	}
	d.ok(7, Main, messages(1)) // all else goes on
	d.after(5000)
	if o := d.do(7, Main, forward); o.Refusal != None || len(o.Moves) != 1 || o.Moves[0].Number != 2 {
		t.Fatalf("forward behind the hold: %+v", o)
	}
	if d.s.Holding() != 0 {
		t.Fatal("the hold is still in force")
	}
}

// restoredInto puts what state s has of all entities into a new partition. It makes pages of at most most bodies, in an
// order of its own, and puts each page back twice.
func restoredInto(t *testing.T, s *State, p PartitionID, most int) *driver {
	t.Helper()
	to := newDriver(t)
	to.s = New(p)
	to.lead()
	to.wall, to.lease = s.wall, s.lease
	for _, e := range s.Described() {
		d := *e
		if d.Partitioned {
			d.Prefixes = nil
			for share := range d.Partitions {
				d.Prefixes = append(d.Prefixes, e.Prefix(share))
			}
		}
		d.Partitions = slices.Clone(e.Partitions)
		d.Partitions[slices.Index(d.Partitions, s.id)] = p
		to.ok(0, Main, &PutEntity{Descriptor: d})
	}
	twice := func(id EntityID, c *Restore) {
		to.ok(id, Main, c)
		to.ok(id, Main, c)
		if err := to.s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	type body struct {
		ref BodyRef
		at  []Place
	}
	for _, e := range s.Described() {
		twice(e.ID, &Restore{Step: RestoreBegin, Counters: s.CountersOf(e.ID)})
	}
	var bodies []body
	for _, e := range s.Described() {
		s.EachPlace(e.ID, func(ref BodyRef, _ []BodyRef, at Place) {
			i := slices.IndexFunc(bodies, func(b body) bool { return b.ref == ref && ref.Length > 0 })
			if i < 0 {
				i, bodies = len(bodies), append(bodies, body{ref: ref})
			}
			bodies[i].at = append(bodies[i].at, at)
		})
	}
	slices.Reverse(bodies) // order-free: a share takes its messages in any order
	for _, b := range bodies {
		root := b.at[0].Entity
		if sh, _ := s.shares.Get(root); sh.d.Kind == Subscription {
			root = sh.d.Parent
		}
		c := &Restore{Step: RestorePage, Bodies: []Message{{Body: bytes.Repeat([]byte{'b'}, int(b.ref.Length))}}, Uses: [][]BodyUse{nil}}
		for _, at := range b.at {
			c.Uses[0] = append(c.Uses[0], s.Use(at))
		}
		twice(root, c)
	}
	for _, e := range s.Described() {
		c := &Restore{Step: RestorePage}
		s.EachSession(e.ID, func(in RestoredSession, _ []BodyRef) { c.Sessions = append(c.Sessions, in) })
		s.EachID(e.ID, func(in RestoredID) { c.IDs = append(c.IDs, in) })
		s.EachRecord(e.ID, func(in RestoredRecord) { c.Records = append(c.Records, in) })
		s.EachOrigin(e.ID, func(in RestoredOrigin) { c.Origins = append(c.Origins, in) })
		twice(e.ID, c)
	}
	img := imageOf(t, to.s)
	if err := to.s.Restore(bytes.NewReader(img)); err != nil { // in the middle of a restore
		t.Fatal(err)
	}
	for _, e := range slices.Backward(s.Described()) {
		twice(e.ID, &Restore{Step: RestoreEnd})
	}
	return to
}

// S-362, S-365: a restored state holds what the backed up one held, but for locks. Pages may be repeated.
func TestARestoredStateHoldsWhatWasBackedUp(t *testing.T) {
	from := populated(t)
	to := restoredInto(t, from.s, 3, 1)
	was, now := from.s.Census(), to.s.Census()
	was.Active, was.Locked = was.Active+was.Locked, 0
	if now.Active+now.DeadLetters+now.Deferred != was.Active+was.DeadLetters+was.Deferred || now.Locked != 0 ||
		now.Scheduled != was.Scheduled || now.TransferDeadLetters != was.TransferDeadLetters || now.Leaving != was.Leaving ||
		now.InTransit != was.InTransit || now.SessionStates != was.SessionStates || now.DuplicateIDs != was.DuplicateIDs ||
		now.HistoryRecords != was.HistoryRecords || now.Entities != was.Entities {
		t.Errorf("restored %+v\nbacked up %+v", now, was)
	}
	for _, e := range from.s.Described() {
		if got, want := to.s.CountersOf(e.ID), from.s.CountersOf(e.ID); got != want {
			t.Errorf("entity %d: counters %+v, want %+v", e.ID, got, want)
		}
		var uses [2][]BodyUse
		var sessions [2][]RestoredSession
		var ids [2][]RestoredID
		var records [2][]RestoredRecord
		var origins [2][]RestoredOrigin
		for i, s := range []*State{from.s, to.s} {
			s.EachPlace(e.ID, func(_ BodyRef, _ []BodyRef, at Place) { uses[i] = append(uses[i], s.Use(at)) })
			s.EachSession(e.ID, func(in RestoredSession, _ []BodyRef) { sessions[i] = append(sessions[i], in) })
			slices.SortFunc(sessions[i], func(a, b RestoredSession) int { return strings.Compare(a.ID, b.ID) })
			s.EachID(e.ID, func(in RestoredID) { ids[i] = append(ids[i], in) })
			s.EachRecord(e.ID, func(in RestoredRecord) { records[i] = append(records[i], in) })
			s.EachOrigin(e.ID, func(in RestoredOrigin) { origins[i] = append(origins[i], in) })
		}
		for name, pair := range map[string][2]any{"messages": {uses[0], uses[1]}, "sessions": {sessions[0], sessions[1]},
			"ids": {ids[0], ids[1]}, "records": {records[0], records[1]}, "origins": {origins[0], origins[1]}} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("entity %d, %s:\nbacked up %+v\nrestored  %+v", e.ID, name, pair[0], pair[1])
			}
		}
	}
}

// S-363: while a share is restored it takes nothing else, and time does nothing in it. Then what was due is done.
func TestAShareThatIsRestoredRests(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.DeadLetterOnExpiration = true }))
	d.ok(7, Main, &Restore{Step: RestoreBegin, Counters: ShareCounters{Arrival: 9}})
	page := &Restore{Step: RestorePage, Bodies: []Message{{Body: []byte("a")}, {Body: []byte("b")}}, Uses: [][]BodyUse{
		{{Message: RestoredMessage{Arrival: 3, At: d.wall, Expires: d.wall + 1000}}},
		{{Message: RestoredMessage{Arrival: 5, State: StateScheduled, At: d.wall + 1000}}}}}
	d.ok(7, Main, page)
	d.after(60_000)
	d.ok(0, Main, &Tick{})
	for _, c := range []Command{messages(1), &Lock{Max: 1}, &Cancel{Numbers: []SequenceNumber{5}}, &Touch{},
		&Redrive{Max: 1}, &DeleteMessages{Max: 1}, &Forward{Epoch: d.epoch, Max: 1}} {
		if o := d.do(7, Main, c); o.Refusal != Busy {
			t.Errorf("%T: %+v", c, o)
		}
	}
	if o := d.do(0, Main, &Commit{Ops: []Op{{Entity: 7, Command: messages(1)}}}); o.Refusal != TransactionAborted {
		t.Errorf("a transaction: %+v", o)
	}
	if a := d.s.Query(QueryRequest{Entity: 7, Query: &Moving{Max: 1}}); a.Refusal != Busy {
		t.Errorf("what is in transit: %+v", a)
	}
	if c := d.s.Census(); c.Active != 1 || c.Scheduled != 1 {
		t.Errorf("time has done something: %+v", c)
	}
	d.ok(7, Main, &Restore{Step: RestoreEnd})
	d.ok(0, Main, &Tick{})
	if got := d.ok(7, Main, &Lock{Max: 9}).Locked; len(got) != 1 || got[0].Seq != 10 {
		t.Errorf("the message that was scheduled: %+v", got)
	}
	if c := d.s.Census(); c.Locked != 1 || c.DeadLetters != 1 || c.Scheduled != 0 {
		t.Errorf("what was due is not done: %+v", c)
	}
	if o := d.ok(7, Main, messages(1)); o.Numbers[0] <= 10 {
		t.Errorf("a number was given twice: %+v", o)
	}
	for name, c := range map[string]*Restore{"a page behind the end": page,
		"a beginning in a share that was used": {Step: RestoreBegin}} {
		if o := d.do(7, Main, c); o.Refusal != InvalidOperation {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A page with something impossible in it is refused whole.
func TestImpossiblePagesAreRefused(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(0, Main, queue(8))
	d.ok(7, Main, &Restore{Step: RestoreBegin, Counters: ShareCounters{Arrival: 9, Moves: [4]uint64{2}}})
	one := func(m RestoredMessage) *Restore {
		return &Restore{Step: RestorePage, Bodies: []Message{{Body: []byte("a")}}, Uses: [][]BodyUse{{{Message: m}}}}
	}
	for name, c := range map[string]*Restore{
		"arrival 0":                     one(RestoredMessage{}),
		"a number that was never given": one(RestoredMessage{Arrival: 10}),
		"scheduled without time":        one(RestoredMessage{Arrival: 1, State: StateScheduled}),
		"scheduled and dead":            one(RestoredMessage{Arrival: 1, Sub: DeadLetter, State: StateScheduled, At: 1}),
		"goes nowhere":                  one(RestoredMessage{Arrival: 1, Sub: TransferQueue}),
		"in transit, never begun":       one(RestoredMessage{Arrival: 1, Transit: 3}),
		"in transit and deferred":       one(RestoredMessage{Arrival: 1, State: StateDeferred, Transit: 1}),
		"no use":                        {Step: RestorePage, Bodies: []Message{{Body: []byte("a")}}, Uses: [][]BodyUse{{}}},
		"no list of uses":               {Step: RestorePage, Bodies: []Message{{Body: []byte("a")}}},
		"another entity": {Step: RestorePage, Bodies: []Message{{Body: []byte("a")}},
			Uses: [][]BodyUse{{{Entity: 8, Message: RestoredMessage{Arrival: 1}}}}},
		"one place twice": {Step: RestorePage, Bodies: []Message{{Body: []byte("a")}},
			Uses: [][]BodyUse{{{Message: RestoredMessage{Arrival: 1}}, {Message: RestoredMessage{Arrival: 1}}}}},
		"a session":             {Step: RestorePage, Sessions: []RestoredSession{{ID: "s", HasState: true}}},
		"an id":                 {Step: RestorePage, IDs: []RestoredID{{At: 1}}},
		"a record of no order":  {Step: RestorePage, Records: []RestoredRecord{{Kind: Accepted}}},
		"a decision too old":    {Step: RestorePage, Origins: []RestoredOrigin{{Entity: 1, Below: 5, Decided: []Moved{{Number: 4}}}}},
		"a counter too large":   {Step: RestoreBegin, Counters: ShareCounters{Arrival: 1<<64 - 1}},
		"a good one with a bad": {Step: RestorePage, Bodies: []Message{{Body: []byte("a")}, {Body: []byte("b")}}, Uses: [][]BodyUse{{{Message: RestoredMessage{Arrival: 1}}}, {{Message: RestoredMessage{Arrival: 99}}}}},
	} {
		if o := d.do(7, Main, c); o.Refusal != InvalidArgument {
			t.Errorf("%s: %+v", name, o)
		}
		if err := d.s.CheckInvariants(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if c := d.s.Census(); c.Active+c.Deferred+c.Scheduled+c.DeadLetters > 0 {
		t.Errorf("something was stored: %+v", c)
	}
}
