package fsm

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/tidwall/btree"
)

// State is the replicated state of one partition: the shares of many entities. It is not safe for
// concurrent use; the image of Capture is.
//
// Everything replicated lives in copy-on-write ordered tables, so no map order can reach an outcome
// and a capture costs the same whatever the backlog (A8).
type State struct {
	id    PartitionID
	index uint64 // of the last entry applied
	epoch uint64 // index of the BecomeLeader entry whose leadership may change the state (A15)

	// wall and lease are the two clocks (S-285). They never go back: what has expired once stays
	// expired, whatever the clock of the next leader says.
	wall  Wall
	lease Lease

	// holding is the hold of forwards that is in force until heldUntil, 0 for none.
	holding   uint64
	heldUntil Lease

	// gen is the number of captures. A share of an older generation belongs to an image and is
	// cloned before it is written.
	gen    uint64
	shares *btree.Map[EntityID, *share]
	// dropped are deleted entities whose bodies are not all reported as freed yet; Tick empties them.
	dropped *btree.Map[EntityID, *share]

	// arriving is what is staged of shares that move here, and leaving when the content of those is dropped that moved away.
	// leaving is derived from the shares.
	arriving *btree.Map[EntityID, *arriving]
	leaving  *btree.Map[EntityID, Lease]

	// leaseNext and wallNext hold the earliest deadline of each share that has one.
	leaseNext *btree.BTreeG[nextDue[Lease]]
	wallNext  *btree.BTreeG[nextDue[Wall]]

	// subscriptions are those with a share here, by topic. It is derived from their descriptions.
	subscriptions *btree.BTreeG[child]
	// bodies are those that more than one message refers to.
	bodies *btree.BTreeG[sharedBody]
	// large are those that lie in several log entries, and staged the bytes of uploads under way.
	large  *btree.BTreeG[largeBody]
	staged uint64

	// listening are the entities whose share is: somebody receives from them (A22).
	listening *btree.Map[EntityID, struct{}]
	// dropping are the entities whose drops may not be zero; it is derived from them. deleted is how
	// many messages ended because their entity was deleted.
	dropping *btree.Map[EntityID, struct{}]
	deleted  uint64

	results   *btree.BTreeG[result]    // one per pump (A6)
	resultDue *btree.BTreeG[resultDue] // one per pump: when to look whether it is forgotten
	// lost holds the lives of nodes that are over, in the order they ended, and lostAt their places
	// in it.
	lost      *btree.Map[uint64, Incarnation]
	lostAt    *btree.Map[Incarnation, uint64]
	lostOrder uint64

	// See the constants maxResults, maxDuePerTick and maxSeen; tests make them smaller.
	maxResults, maxDue, maxSeen int

	run run
}

// run is what belongs to the entry being applied and to nothing else.
type run struct {
	result   *Result
	seed     [32]byte
	seeded   bool
	chance   rand.ChaCha8
	woken    map[WaitKey]int // places in Wake; looked up, never ranged over
	place    int             // in the entry, of the request being done
	stamp    uint64          // of the request being done, another one for each of all entries
	picks    []pick
	keys     []placeKey
	subs     []*share // of the topic being published to, for reading
	plans    []planned
	unstored []unstored // of the topic being published to, with plans
	// steps is what the rules of topics may still cost in the entry.
	steps int
	view  view
	by    RequestID // of the request being done
	// undoable says that a transaction is being done, and tokens is what it did to tokens.
	undoable bool
	tokens   []tokenChange
	named    []namedSession // that came into being in it
	// freed is how many bodies the entry before freed, within a bound: as many as this one may free.
	freed   int
	tallies []Tally // of the entry, one for each share that has something to count
	// concluded are the entities of shares whose deadlines are to become known.
	concluded []EntityID
}

// New returns the empty state of partition p.
func New(p PartitionID) *State {
	return &State{
		id:        p,
		shares:    new(btree.Map[EntityID, *share]),
		dropped:   new(btree.Map[EntityID, *share]),
		leaseNext: newTable(nextDue[Lease].less),
		wallNext:  newTable(nextDue[Wall].less),
		listening: new(btree.Map[EntityID, struct{}]),
		arriving:  new(btree.Map[EntityID, *arriving]),
		leaving:   new(btree.Map[EntityID, Lease]),
		dropping:  newDropping(),

		subscriptions: newTable(child.less),
		bodies:        newTable(sharedBody.less),
		large:         newTable(largeBody.less),

		results:   newTable(result.less),
		resultDue: newTable(resultDue.less),
		lost:      new(btree.Map[uint64, Incarnation]),
		lostAt:    new(btree.Map[Incarnation, uint64]),

		maxResults: maxResults,
		maxDue:     maxDuePerTick,
		maxSeen:    maxSeen,
	}
}

// newTable returns an ordered table without a lock of its own: the state has one owner.
func newTable[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// write returns the share of an entity for writing, nil if it is unknown.
func (s *State) write(id EntityID) *share {
	sh, ok := s.shares.Get(id)
	if !ok {
		return nil
	}
	if sh.gen != s.gen {
		sh = sh.clone(s.gen)
		s.shares.Set(id, sh)
	}
	return sh
}

// Clocks returns the stamped clocks.
func (s *State) Clocks() (wall Wall, lease Lease) { return s.wall, s.lease }

// draw returns the next chance of the entry.
func (s *State) draw() uint64 {
	if !s.run.seeded {
		s.run.chance.Seed(s.run.seed)
		s.run.seeded = true
	}
	return s.run.chance.Uint64()
}

// token draws a token that no lock of the share has.
func (s *State) token(sh *share) LockToken {
	for {
		var t LockToken
		binary.BigEndian.PutUint64(t[:8], s.draw())
		binary.BigEndian.PutUint64(t[8:], s.draw())
		t[0], t[1] = byte(sh.prefix>>8), byte(sh.prefix)
		if t.IsZero() {
			continue
		}
		if _, taken := sh.tokens.get(t); !taken {
			return t
		}
	}
}

// freeBody frees the body of a message that is not stored, with its upload if that was claimed.
func (s *State) freeBody(m *Message) {
	s.free(BodyRef{Index: s.index, Offset: m.BodyOffset, Length: uint32(len(m.Body))})
}

// bodyRef refers to the body of a message whose upload was claimed.
func (s *State) bodyRef(m *Message) BodyRef {
	return BodyRef{Index: s.index, Offset: m.BodyOffset, Length: uint32(m.Size())}
}

// wake reports a key once per entry, with the last request that woke it.
func (s *State) wake(k WaitKey) {
	r := s.run.result
	if at, ok := s.run.woken[k]; ok {
		r.WokenBy[at] = s.run.place
		return
	}
	if s.run.woken == nil {
		s.run.woken = make(map[WaitKey]int)
	}
	s.run.woken[k] = len(r.Wake)
	r.Wake, r.WokenBy = append(r.Wake, k), append(r.WokenBy, s.run.place)
}

func (o *Outcome) refuse(r Refusal, detail string) {
	o.Refusal = r
	o.Detail = detail
}

// key is the part of the token that the token index goes by; it is all chance.
func (t LockToken) key() uint64 {
	return binary.BigEndian.Uint64(t[8:])
}

// wakeAll makes everybody who waits on the entity ask again and hear the refusal. Holders of
// sessions were woken when their session was released.
func (s *State) wakeAll(sh *share) {
	for sub := Main; sub <= TransferDeadLetter; sub++ {
		s.wake(WaitKey{Entity: sh.d.ID, Sub: sub, Kind: WaitMessage})
	}
	s.wake(WaitKey{Entity: sh.d.ID, Kind: WaitSession})
}

// child names a subscription under its topic.
type child struct{ topic, id EntityID }

func (a child) less(b child) bool {
	if a.topic != b.topic {
		return a.topic < b.topic
	}
	return a.id < b.id
}

// children returns the subscriptions of a topic for reading; s.write gives those for writing.
func (s *State) children(topic EntityID, into []*share) []*share {
	s.subscriptions.Ascend(child{topic: topic}, func(c child) bool {
		if c.topic != topic {
			return false
		}
		if sh, ok := s.shares.Get(c.id); ok {
			into = append(into, sh)
		}
		return true
	})
	return into
}
