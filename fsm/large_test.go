package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// large takes messages of up to 100 MB.
func large(d *Descriptor) { d.MaxMessageBytes = 102_400 << 10 }

// stage uploads parts to the entity, each until it is answered; ok is false if an answer was lost and
// the caller is not one that asks again.
func (c *partitions) stage(entity EntityID, parts ...[]byte) (u Upload, ok bool) {
	c.t.Helper()
	c.request++
	u = Upload{ID: UploadID(c.request)}
	for _, part := range parts {
		o, lost := c.entry(c.parts[c.home[entity]], Request{Entity: entity,
			Command: &BodyPart{Upload: u.ID, Number: u.Parts, Body: part}})
		if lost {
			o, _ = c.entry(c.parts[c.home[entity]], Request{Entity: entity,
				Command: &BodyPart{Upload: u.ID, Number: u.Parts, Body: part}})
		}
		if o.Refusal != None {
			c.t.Fatalf("part %d: %v %s", u.Parts, o.Refusal, o.Detail)
		}
		u.Parts++
		u.Bytes += uint32(len(part))
	}
	return u, true
}

func (c *partitions) sendLarge(entity EntityID, label string) {
	c.t.Helper()
	u, _ := c.stage(entity, []byte(label+"-1"), []byte(label+"-2"), []byte(label+"-3"))
	m := sent(label).Messages[0]
	m.Rest = u
	c.must(entity, Main, one(m))
}

// rest returns what follows the beginnings of the messages in a queue.
func (c *partitions) rest(entity EntityID, sub SubQueue) (all []string) {
	p := c.parts[c.home[entity]]
	for _, d := range p.s.Query(QueryRequest{Entity: entity, Sub: sub, Query: &Peek{Max: 100}}).Messages {
		text := ""
		for _, ref := range d.Rest {
			text += string(p.bodies[ref])
		}
		all = append(all, text)
	}
	return all
}

// RUL-25: a large message is sent, dead-lettered, forwarded to another partition, received and
// completed: whole, once and without a part that nobody refers to, whatever entry loses its answer.
func TestALargeMessageIsWholeWhereverALeaderIsLost(t *testing.T) {
	everywhere(t, 2, func(c *partitions) {
		c.put(1, queue(1, large, func(d *Descriptor) { d.ForwardDeadLettersTo = "e2" }))
		c.put(2, queue(2, large))
		c.sendLarge(1, "a")
		c.must(1, Main, sent("b"))
		got := c.must(1, Main, &Lock{Max: 1}).Locked
		if len(got) != 1 || len(got[0].Rest) != 3 {
			t.Fatalf("crash at entry %d: %+v", c.crashAt, got)
		}
		c.must(1, Main, settle(got[0].Token, Kill))
		c.forward(1, DeadLetter, 2)
		c.holds(1, DeadLetter)
		c.holds(1, Main, "b")
		c.holds(2, Main, "a")
		if rest := c.rest(2, Main); !slices.Equal(rest, []string{"a-1a-2a-3"}) {
			t.Fatalf("crash at entry %d: the parts say %q", c.crashAt, rest)
		}
		got = c.must(2, Main, &Lock{Max: 1, MaxBytes: 1}).Locked
		c.must(2, Main, settle(got[0].Token, Complete))
		for _, p := range c.parts { // what a lost answer left staged expires
			p.after(2 * uploadTime)
			for range 2 {
				c.entry(p, Request{Command: &Tick{}})
			}
		}
		c.keeps(1)
	})
}

// RUL-25: the state of a session may be as large as a message; what it replaces is freed.
func TestALargeSessionStateIsWholeWhereverALeaderIsLost(t *testing.T) {
	everywhere(t, 1, func(c *partitions) {
		c.put(1, queue(1, large, withSessions))
		p := c.must(1, Main, &AcceptSession{ID: "s"}).Session
		for _, text := range []string{"old", "new"} {
			u, _ := c.stage(1, []byte(text+"-1"), []byte(text+"-2"))
			c.must(1, Main, &SetSessionState{Session: p, Rest: u})
		}
		a := c.parts[1].s.Query(QueryRequest{Entity: 1, Query: &GetSessionState{Session: p}})
		text := ""
		for _, ref := range a.Parts {
			text += string(c.parts[1].bodies[ref])
		}
		if !a.HasState || len(a.State) != 0 || text != "new-1new-2" {
			t.Fatalf("crash at entry %d: state %q, %+v", c.crashAt, text, a)
		}
		c.keeps(2)
		c.must(1, Main, &SetSessionState{Session: p, State: []byte("small")})
		c.keeps(0)
	})
}

// lengths is the length of a body with its parts.
func lengths(d Delivery) (n uint32) {
	n = d.Ref.Length
	for _, ref := range d.Rest {
		n += ref.Length
	}
	return n
}

// upload stages parts of a length each.
func (d *driver) upload(entity EntityID, id UploadID, lengths ...int) Upload {
	d.tb.Helper()
	u := Upload{ID: id}
	for _, n := range lengths {
		d.ok(entity, Main, &BodyPart{Upload: id, Number: u.Parts, Body: make([]byte, n)})
		u.Parts, u.Bytes = u.Parts+1, u.Bytes+uint32(n)
	}
	return u
}

func (d *driver) size(entity EntityID) uint64 {
	return d.s.Query(QueryRequest{Entity: entity, Query: &Counts{}}).Counts.SizeBytes
}

func (d *driver) check() {
	d.tb.Helper()
	if err := d.s.CheckInvariants(); err != nil {
		d.tb.Fatal(err)
	}
	r := New(1)
	if err := r.Restore(bytes.NewReader(imageOf(d.tb, d.s))); err != nil {
		d.tb.Fatal(err)
	}
	if err := r.CheckInvariants(); err != nil {
		d.tb.Fatal(err)
	}
	if got, want := r.Digest(), d.s.Digest(); got != want {
		d.tb.Fatal("the image is of another state")
	}
}

// RUL-25: what the parts of a body may not be, by the code of the refusal.
func TestPartsThatCannotBeStagedAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		c    BodyPart
		sub  SubQueue
		want Refusal
	}{
		"no upload":                   {BodyPart{Body: []byte("x")}, Main, InvalidArgument},
		"no bytes":                    {BodyPart{Upload: 5}, Main, InvalidArgument},
		"too many bytes":              {BodyPart{Upload: 5, Body: make([]byte, PartBytes+1)}, Main, InvalidArgument},
		"a part before it is missing": {BodyPart{Upload: 5, Number: 1, Body: []byte("x")}, Main, UploadLost},
		"a number beyond the last":    {BodyPart{Upload: 5, Number: maxParts, Body: []byte("x")}, Main, InvalidArgument},
		"a subqueue":                  {BodyPart{Upload: 5, Body: []byte("x")}, DeadLetter, InvalidOperation},
		"more than a message may be":  {BodyPart{Upload: 4, Number: 4, Body: make([]byte, PartBytes)}, Main, MessageSizeExceeded},
		"more than the quota": {BodyPart{Upload: 6, Number: 0, Body: make([]byte, PartBytes)}, Main,
			QuotaExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			quota := uint64(2 << 20)
			if c.want == QuotaExceeded {
				quota = 1<<20 + 2
			}
			d.ok(0, Main, queue(7, func(d *Descriptor) { d.MaxSizeBytes = quota }))
			d.upload(7, 4, PartBytes, PartBytes, PartBytes, PartBytes)
			before := d.s.Digest()
			part := c.c
			r := d.apply(Request{Entity: 7, Sub: c.sub, Command: &part})
			if r.Outcomes[0].Refusal != c.want {
				t.Errorf("%v %s, want %v", r.Outcomes[0].Refusal, r.Outcomes[0].Detail, c.want)
			}
			if len(r.Freed) != 1 {
				t.Errorf("freed %v", r.Freed)
			}
			if d.s.Digest() != before {
				t.Error("the refusal changed the state")
			}
			d.check()
		})
	}
}

// A part that comes twice is staged once, and its second body is freed.
func TestAPartThatIsStagedAlreadyChangesNothing(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, large))
	u := d.upload(7, 4, 10, 20)
	r := d.apply(Request{Entity: 7, Command: &BodyPart{Upload: 4, Body: make([]byte, 10)}})
	if r.Outcomes[0].Refusal != None || len(r.Freed) != 1 || r.Freed[0].Length != 10 || d.size(7) != 30 {
		t.Fatalf("%+v, size %d", r, d.size(7))
	}
	d.ok(7, Main, one(Message{Body: []byte("h"), Rest: u}))
	got := d.ok(7, Main, &Lock{Max: 1}).Locked
	if len(got) != 1 || lengths(got[0]) != 31 || d.size(7) != 31 {
		t.Fatalf("%+v, size %d", got, d.size(7))
	}
	d.check()
}

// Staged parts that nothing follows are freed by the clock of the log, and what comes too late is told so.
func TestAnUploadThatIsNotUsedExpires(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, large))
	u := d.upload(7, 4, 10, 20)
	if _, lease := d.s.NextDeadline(); lease != d.lease.After(uploadTime) {
		t.Fatalf("the next deadline is %d at %d", lease, d.lease)
	}
	d.after(uploadTime)
	if r := d.apply(Request{Command: &Tick{}}); len(r.Freed) != 2 || d.size(7) != 0 {
		t.Fatalf("freed %v, size %d", r.Freed, d.size(7))
	}
	if o := d.do(7, Main, one(Message{Body: []byte("h"), Rest: u})); o.Refusal != UploadLost {
		t.Fatalf("%+v", o)
	}
	d.check()
}

// What refers to parts must name all of them: anything else is refused and nothing is stored.
func TestACommandThatMissesPartsIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Upload){
		"another upload":  func(u *Upload) { u.ID++ },
		"a part too many": func(u *Upload) { u.Parts++ },
		"a byte too many": func(u *Upload) { u.Bytes++ },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			d.ok(0, Main, queue(7, large))
			d.ok(0, Main, queue(8, large, withSessions))
			u := d.upload(7, 4, 10, 20)
			state := d.upload(8, 5, 10)
			change(&u)
			change(&state)
			if o := d.do(7, Main, one(Message{Body: []byte("h"), Rest: u})); o.Refusal != UploadLost {
				t.Errorf("message: %+v", o)
			}
			if o := d.do(7, Main, &Transfer{To: 9, Messages: []Message{{Body: []byte("h"), Rest: u}}}); o.Refusal != UploadLost {
				t.Errorf("transfer: %+v", o)
			}
			p := d.ok(8, Main, &AcceptSession{ID: "s"}).Session
			if o := d.do(8, Main, &SetSessionState{Session: p, Rest: state}); o.Refusal != UploadLost {
				t.Errorf("state: %+v", o)
			}
			d.check()
		})
	}
}

// Every way out of a share frees all parts of a body, once.
func TestEveryEndOfALargeMessageFreesItsParts(t *testing.T) {
	for name, end := range map[string]func(d *driver){
		"completed":            func(d *driver) { d.ok(7, Main, settle(d.ok(7, Main, &Lock{Max: 1}).Locked[0].Token, Complete)) },
		"received and deleted": func(d *driver) { d.ok(7, Main, &Lock{Max: 1, Delete: true}) },
		"purged":               func(d *driver) { d.ok(7, Main, &DeleteMessages{Max: 10}) },
		"expired": func(d *driver) {
			d.after(60_000)
			d.apply(Request{Command: &Tick{Listeners: []EntityID{7}}})
		},
		"dropped with its entity": func(d *driver) {
			d.ok(7, Main, &DropEntity{})
			d.apply(Request{Command: &Tick{}})
		},
		"moved away": func(d *driver) {
			d.ok(0, Main, queue(7, large, forwardTo("q2"), func(d *Descriptor) { d.Version = 2 }))
			d.do(7, Main, &Forward{Epoch: d.epoch, To: 9, Max: 1})
			d.do(7, Main, &Forward{Epoch: d.epoch, Done: []Moved{{Number: 1}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			d.ok(0, Main, queue(7, large))
			u := d.upload(7, 4, 10, 20, 30)
			freed := map[BodyRef]int{}
			d.ok(7, Main, one(Message{Body: []byte("head"), TTL: 50_000, Rest: u}))
			watch(d, freed, func() { end(d) })
			if len(freed) != 4 {
				t.Errorf("freed %v", freed)
			}
			for ref, n := range freed {
				if n != 1 {
					t.Errorf("%v was freed %d times", ref, n)
				}
			}
			if d.s.large.Len() != 0 {
				t.Errorf("%d large bodies are left", d.s.large.Len())
			}
			d.check()
		})
	}
}

// watch counts what the entries of f free.
func watch(d *driver, freed map[BodyRef]int, f func()) {
	d.freed = func(ref BodyRef) { freed[ref]++ }
	f()
	d.freed = nil
}

// A topic's copies share one large body, which goes with the last of them.
func TestTheCopiesOfALargeMessageShareItsParts(t *testing.T) {
	d := newDriver(t)
	topic := topicOf(9)
	topic.Descriptor.MaxMessageBytes = 102_400 << 10
	d.ok(0, Main, topic)
	d.ok(0, Main, subscriptionOf(10, 9, nil, "1=1"))
	d.ok(0, Main, subscriptionOf(11, 9, nil, "1=1"))
	u := d.upload(9, 4, 10, 20)
	d.ok(9, Main, one(Message{Body: []byte("head"), Rest: u}))
	freed := map[BodyRef]int{}
	watch(d, freed, func() {
		for id := EntityID(10); id < 12; id++ {
			if len(freed) != 0 {
				t.Fatalf("freed %v while a copy is there", freed)
			}
			got := d.ok(id, Main, &Lock{Max: 1}).Locked
			if len(got) != 1 || lengths(got[0]) != 34 {
				t.Fatalf("subscription %d got %+v", id, got)
			}
			d.check()
			d.ok(id, Main, settle(got[0].Token, Complete))
		}
	})
	if len(freed) != 3 {
		t.Errorf("freed %v", freed)
	}
	d.check()
}

// A transaction that fails leaves its uploads as they were, so that it can be tried again.
func TestAFailedTransactionLeavesItsUploads(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, large))
	u := d.upload(7, 4, 10, 20)
	commit := func(last Command) *Commit {
		return &Commit{Ops: []Op{{Entity: 7, Command: one(Message{Body: []byte("h"), Rest: u})}, {Entity: 7, Command: last}}}
	}
	before := d.s.Digest()
	if o := d.do(0, Main, commit(settle(LockToken{0, 0, 1}, Complete))); o.Refusal != TransactionAborted {
		t.Fatalf("%+v", o)
	}
	if d.s.Digest() != before {
		t.Error("the aborted transaction left a trace")
	}
	d.check()
	d.ok(0, Main, commit(message1("beside")))
	if got := d.ok(7, Main, &Lock{Max: 2}).Locked; len(got) != 2 || lengths(got[0]) != 31 {
		t.Errorf("%+v", got)
	}
	d.check()
}

// A transaction whose parts have expired comes again under its own id, behind its parts.
func TestATransactionWithoutItsPartsIsNotRemembered(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, large))
	u := Upload{ID: 4, Parts: 2, Bytes: 30}
	commit := Request{ID: RequestID{Node: 1, Pump: 2, Counter: 3}, Command: &Commit{Ops: []Op{
		{Entity: 7, Command: one(Message{Body: []byte("h"), Rest: u})}}}}
	o := d.apply(commit).Outcomes[0]
	if o.Refusal != TransactionAborted || o.Ops[0].Refusal != UploadLost {
		t.Fatalf("%+v", o)
	}
	d.upload(7, 4, 10, 20)
	if o = d.apply(commit).Outcomes[0]; o.Refusal != None || o.Repeated {
		t.Fatalf("again: %+v", o)
	}
	if o = d.apply(commit).Outcomes[0]; o.Refusal != None || !o.Repeated {
		t.Fatalf("a third time: %+v", o)
	}
	if got := d.ok(7, Main, &Lock{Max: 2}).Locked; len(got) != 1 || lengths(got[0]) != 31 {
		t.Errorf("%+v", got)
	}
	d.check()
}

// The bounds of what may be staged.
func TestUploadsAreBounded(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, large))
	for i := range maxUploads {
		d.upload(7, UploadID(i+1), 1)
	}
	if o := d.do(7, Main, &BodyPart{Upload: 1000, Body: []byte("x")}); o.Refusal != Busy {
		t.Fatalf("%+v", o)
	}
	d.upload(7, 2000) // nothing
	d.ok(7, Main, &BodyPart{Upload: 1, Number: 1, Body: []byte("x")})
	d.check()
	d.s.staged = maxStagedBytes
	if o := d.do(7, Main, &BodyPart{Upload: 1, Number: 2, Body: []byte("x")}); o.Refusal != Busy {
		t.Fatalf("%+v", o)
	}
}

// An image from a faulty peer is not believed.
func TestAnImageWithImpossiblePartsIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(s *State){
		"a large body of nobody": func(s *State) {
			s.large.Set(largeBody{index: 1, offset: 1, head: 1, parts: []BodyRef{{1, 2, 3}}})
		},
		"a part of a later entry": func(s *State) {
			sh := s.write(7)
			sh.uploads.Set(9, upload{parts: []BodyRef{{99, 2, 3}}, bytes: 3, until: 5})
		},
		"an upload without parts": func(s *State) { s.write(7).uploads.Set(9, upload{until: 5}) },
		"parts of no session":     func(s *State) { s.write(7).parted.Set(9, parted{bytes: 3, parts: []BodyRef{{1, 2, 3}}}) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			d.ok(0, Main, queue(7, large))
			spoil(d.s)
			if err := New(1).Restore(bytes.NewReader(imageOf(t, d.s))); err == nil {
				t.Error("the image was restored")
			}
		})
	}
}

// BenchmarkBesideALargeBody measures send, lock and complete while a partition holds large bodies.
func BenchmarkBesideALargeBody(b *testing.B) {
	for _, n := range []int{0, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := newDriver(b)
			d.ok(0, Main, queue(7, large, func(d *Descriptor) { d.MaxSizeBytes = 0 }))
			d.ok(0, Main, queue(8))
			for i := range n {
				d.ok(7, Main, one(Message{Body: []byte("h"), Rest: d.upload(7, UploadID(i+1), 10)}))
			}
			b.ReportAllocs()
			for b.Loop() {
				d.ok(8, Main, message1("x"))
				d.ok(8, Main, settle(d.ok(8, Main, &Lock{Max: 1}).Locked[0].Token, Complete))
			}
		})
	}
}
