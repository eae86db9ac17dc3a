package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// partitions are some partitions with clients and forwarders, where at one entry of the whole the
// partition loses its leader: the entry is applied, its answer never arrives, and the state comes back
// from an earlier image and the log behind it.
type partitions struct {
	t       *testing.T
	parts   map[PartitionID]*replayed
	home    map[EntityID]PartitionID
	applied int
	crashAt int // counted from 1 over all partitions; 0 is never
	request uint64
}

type replayed struct {
	*driver
	log    []*Entry
	images [][]byte // before each entry
	bodies map[BodyRef][]byte
}

func newPartitions(t *testing.T, n int, crashAt int) *partitions {
	c := &partitions{t: t, parts: map[PartitionID]*replayed{}, home: map[EntityID]PartitionID{},
		crashAt: crashAt}
	for id := PartitionID(1); int(id) <= n; id++ {
		p := &replayed{driver: &driver{tb: t, s: New(id), wall: startWall, lease: 1},
			bodies: map[BodyRef][]byte{}}
		c.parts[id] = p
		c.leads(p)
	}
	return c
}

func (c *partitions) leads(p *replayed) {
	p.epoch = 0
	c.entry(p, Request{Command: &BecomeLeader{Node: "n"}})
	p.epoch = p.index
}

// put describes an entity that lives in a partition.
func (c *partitions) put(in PartitionID, p *PutEntity) {
	p.Descriptor.Partitions = []PartitionID{in}
	p.Descriptor.Name = fmt.Sprint("e", p.Descriptor.ID)
	c.home[p.Descriptor.ID] = in
	c.entry(c.parts[in], Request{Command: p})
}

// entry applies one request in an entry of its own, in its encoded form, and follows the bodies.
func (c *partitions) entry(p *replayed, req Request) (o Outcome, lost bool) {
	c.t.Helper()
	e, err := DecodeEntry(AppendEntry(nil, p.entry(req)))
	if err != nil {
		c.t.Fatal(err)
	}
	p.images = append(p.images, imageOf(c.t, p.s))
	p.log = append(p.log, e)
	p.index++
	if part, ok := e.Requests[0].Command.(*BodyPart); ok {
		p.bodies[BodyRef{p.index, part.BodyOffset, uint32(len(part.Body))}] = part.Body
	}
	EachMessage(e.Requests[0].Command, func(m *Message) {
		p.bodies[BodyRef{p.index, m.BodyOffset, uint32(len(m.Body))}] = m.Body
	})
	r := p.s.Apply(p.index, e)
	for _, ref := range r.Freed {
		if _, there := p.bodies[ref]; !there {
			c.t.Fatalf("%T: body %v freed twice", req.Command, ref)
		}
		delete(p.bodies, ref)
	}
	if err := p.s.CheckInvariants(); err != nil {
		c.t.Fatalf("%T: %v", req.Command, err)
	}
	if c.applied++; c.applied == c.crashAt {
		c.crash(p)
		return Outcome{}, true
	}
	return r.Outcomes[0], false
}

// crash rebuilds a partition from the image in the middle of its log.
func (c *partitions) crash(p *replayed) {
	want := p.s.Digest()
	from := len(p.images) / 2
	s := New(p.s.id)
	if err := s.Restore(bytes.NewReader(p.images[from])); err != nil {
		c.t.Fatal(err)
	}
	for i := from; i < len(p.log); i++ {
		s.Apply(uint64(i)+1, p.log[i])
	}
	if s.Digest() != want {
		c.t.Fatal("another state came back")
	}
	p.s = s
	c.leads(p)
}

// ask does a client's command until it is answered, under one id.
func (c *partitions) ask(entity EntityID, sub SubQueue, cmd Command) Outcome {
	c.t.Helper()
	c.request++
	req := Request{ID: RequestID{9, c.request, 1}, Entity: entity, Sub: sub, Command: cmd}
	for {
		if o, lost := c.entry(c.parts[c.home[entity]], req); !lost {
			return o
		}
	}
}

func (c *partitions) must(entity EntityID, sub SubQueue, cmd Command) Outcome {
	c.t.Helper()
	o := c.ask(entity, sub, cmd)
	if o.Refusal != None {
		c.t.Fatalf("%T: %v %s", cmd, o.Refusal, o.Detail)
	}
	return o
}

// forward moves what there is to move from a queue to the entity that its description names, 0 for
// what a transfer queue knows, beginning anew whenever an answer is lost.
func (c *partitions) forward(from EntityID, sub SubQueue, to EntityID) {
	c.t.Helper()
	for range 100 {
		if c.lead(from, sub, to) {
			return
		}
	}
	c.t.Fatal("moves do not end")
}

// lead is the forwarder's work under one leadership; false says that an answer was lost.
func (c *partitions) lead(from EntityID, sub SubQueue, to EntityID) bool {
	p := c.parts[c.home[from]]
	epoch := p.epoch
	a := p.s.Query(QueryRequest{Entity: from, Sub: sub, Query: &Moving{Max: 100}})
	messages, moves, below := a.Messages, a.Moves, uint64(0)
	if len(moves) > 0 {
		below = moves[0].Number
	}
	for {
		done, ok := c.deliver(p, from, sub, messages, moves, below)
		if !ok {
			return false
		}
		waits := len(moves) > len(done)
		o, lost := c.entry(p, Request{Entity: from, Sub: sub, Command: &Forward{
			Epoch: epoch, Done: done, To: to, Max: 2}})
		if lost {
			return false
		}
		if o.Refusal != None {
			c.t.Fatalf("forward: %v %s", o.Refusal, o.Detail)
		}
		if len(o.Moves) == 0 || waits {
			return true
		}
		messages, moves, below = o.Locked, o.Moves, o.Next
	}
}

// deliver offers messages to their destinations and says what became of them.
func (c *partitions) deliver(p *replayed, from EntityID, sub SubQueue, messages []Delivery, moves []Move,
	below uint64,
) (done []Moved, ok bool) {
	c.t.Helper()
	for i := range moves {
		ref := messages[i].Ref
		if messages[i].Body = p.bodies[ref]; ref.Length > 0 && messages[i].Body == nil {
			c.t.Fatalf("body %v of a message in transit is gone", ref)
		}
		dest := c.parts[c.home[moves[i].To]]
		if dest == nil {
			done = append(done, Moved{Number: moves[i].Number, Refusal: EntityNotFound})
			continue
		}
		m, err := Carry(&messages[i], &moves[i])
		if err != nil {
			c.t.Fatal(err)
		}
		if rest := messages[i].Rest; len(rest) > 0 {
			var parts [][]byte
			for _, ref := range rest {
				parts = append(parts, p.bodies[ref])
			}
			if m.Rest, ok = c.stage(moves[i].To, parts...); !ok {
				return nil, false
			}
		}
		o, lost := c.entry(dest, Request{Entity: moves[i].To, Command: &Enqueue{Messages: []Message{m},
			Origin: &Origin{Entity: from, Partition: p.s.id, Sub: sub, Below: below,
				Numbers: []uint64{moves[i].Number}}}})
		switch {
		case lost:
			return nil, false
		case o.Refusal == Stale:
			done = append(done, Moved{Number: moves[i].Number, Refusal: EntityNotFound})
		case o.Refusal != None:
			c.t.Fatalf("moved: %v %s", o.Refusal, o.Detail)
		case o.Refusals[0] != Busy:
			done = append(done, Moved{Number: moves[i].Number, Refusal: o.Refusals[0], Detail: o.Detail})
		}
	}
	return done, true
}

// labels lists what is in a queue, in order.
func (c *partitions) labels(entity EntityID, sub SubQueue) []string {
	p := c.parts[c.home[entity]]
	list := []string{}
	for _, d := range p.s.Query(QueryRequest{Entity: entity, Sub: sub, Query: &Peek{Max: 100}}).Messages {
		_, label, _ := bytes.Cut(p.bodies[d.Ref], []byte(bodyMark))
		list = append(list, string(label))
	}
	return list
}

func (c *partitions) holds(entity EntityID, sub SubQueue, want ...string) {
	c.t.Helper()
	if got := c.labels(entity, sub); !slices.Equal(got, want) {
		c.t.Fatalf("crash at entry %d: entity %d %v holds %q, want %q", c.crashAt, entity, sub, got, want)
	}
}

// stored reports that no partition keeps a body that nobody refers to: it counts them.
func (c *partitions) keeps(want int) {
	c.t.Helper()
	n := 0
	for _, p := range c.parts {
		n += len(p.bodies)
	}
	if n != want {
		c.t.Fatalf("crash at entry %d: %d bodies are kept, want %d", c.crashAt, n, want)
	}
}

// everywhere runs a scenario with a crash at each of its entries, and once without.
func everywhere(t *testing.T, parts int, scenario func(c *partitions)) {
	c := newPartitions(t, parts, 0)
	scenario(c)
	for at := parts + 1; at <= c.applied; at++ {
		scenario(newPartitions(t, parts, at))
	}
	t.Logf("%d places", c.applied-parts)
}

func forwardTo(name string) func(*Descriptor) {
	return func(d *Descriptor) { d.ForwardTo = name }
}

// S-206, S-212, S-311: T-189, T-71: a chain over three partitions, whatever entry loses its answer.
func TestAForwardIsDoneOnceWhereverALeaderIsLost(t *testing.T) {
	everywhere(t, 3, func(c *partitions) {
		c.put(1, queue(1, forwardTo("e2")))
		c.put(2, queue(2, forwardTo("e3")))
		c.put(3, queue(3))
		for _, label := range []string{"a", "b", "c", "d", "e"} {
			c.must(1, Main, sent(label, "n:1"))
		}
		c.forward(1, Main, 2)
		c.forward(2, Main, 3)
		c.must(3, Main, sent("f"))
		c.forward(1, Main, 2)
		c.holds(1, Main)
		c.holds(2, Main)
		c.holds(3, Main, "a", "b", "c", "d", "e", "f")
		c.keeps(6)
		p := c.parts[3]
		for i, d := range p.s.Query(QueryRequest{Entity: 3, Query: &Peek{Max: 5}}).Messages {
			if d.First() != SequenceNumber(i+1) || d.Seq != SequenceNumber(i+1) { // S-102
				t.Fatalf("message %d is number %d, first %d", i, d.Seq, d.First())
			}
		}
	})
}

// Messages of a dead-letter queue and of a main queue go to another partition, each once.
func TestARedriveToAnotherQueueIsDoneOnceWhereverALeaderIsLost(t *testing.T) {
	everywhere(t, 2, func(c *partitions) {
		c.put(1, queue(1))
		c.put(2, queue(2))
		for _, label := range []string{"a", "b", "c"} {
			c.must(1, Main, sent(label, "n:1"))
		}
		for range 2 {
			got := c.must(1, Main, &Lock{Max: 1}).Locked
			s := settle(got[0].Token, Kill)
			s.Items[0].Reason = "bad"
			c.must(1, Main, s)
		}
		if o := c.must(1, DeadLetter, &Redrive{Max: 10, To: 2, HasReason: true, Reason: "bad"}); o.Count != 2 {
			t.Fatalf("%+v", o)
		}
		if o := c.must(1, Main, &Redrive{Max: 10, To: 2}); o.Count != 1 {
			t.Fatalf("%+v", o)
		}
		c.forward(1, TransferQueue, 0)
		c.holds(1, Main)
		c.holds(1, DeadLetter)
		c.holds(2, Main, "a", "b", "c")
		c.keeps(3)
	})
}

// T-232 // S-236, S-324, S-325: A keeps the message and B and C have nothing, or A lost it and B and C
// have exactly one, whatever entry loses its answer.
func TestACrossEntityCommitIsDoneOnceWhereverALeaderIsLost(t *testing.T) {
	everywhere(t, 3, func(c *partitions) {
		for id := EntityID(1); id <= 3; id++ {
			c.put(PartitionID(id), queue(id))
		}
		c.must(1, Main, sent("in", "n:1"))
		got := c.must(1, Main, &Lock{Max: 1}).Locked
		commit := &Commit{ID: []byte{1}, Ops: []Op{
			{Entity: 1, Command: &Transfer{To: 2, Messages: sent("b", "n:1").Messages}},
			{Entity: 1, Command: settle(got[0].Token, Complete)},
			{Entity: 1, Command: &Transfer{To: 3, Messages: sent("c", "n:1").Messages}},
			{Entity: 1, Command: sent("own", "n:1")},
		}}
		if o := c.must(1, Main, commit); len(o.Ops) != 4 || o.Ops[3].Numbers[0] != 2 {
			t.Fatalf("%+v", o)
		}
		c.forward(1, TransferQueue, 0)
		c.holds(1, Main, "own")
		c.holds(2, Main, "b")
		c.holds(3, Main, "c")
		c.keeps(3)
	})
}
