package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// world drives one catalog as its leader would.
type world struct {
	t *testing.T
	s *State
	n uint64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, s: New()}
	w.apply(&fsm.BecomeLeader{Node: "n1"})
	w.must(Change{Place: &Placement{Groups: []Group{{ID: 1, Members: []fsm.NodeID{"a"}},
		{ID: 2, Members: []fsm.NodeID{"a"}}, {ID: 3, Members: []fsm.NodeID{"a"}}}}})
	return w
}

func (w *world) request(id fsm.RequestID, c fsm.Command) fsm.Outcome {
	w.n++
	e := &fsm.Entry{Wall: fsm.Wall(1000 * w.n), Lease: fsm.Lease(w.n), Epoch: 1,
		Requests: []fsm.Request{{ID: id, Command: c}}}
	return w.s.Apply(w.n, e).Outcomes[0]
}

func (w *world) apply(c fsm.Command) fsm.Outcome { return w.request(fsm.RequestID{}, c) }

func (w *world) must(c Change) *fsm.Descriptor {
	w.t.Helper()
	o := w.apply(c.Command())
	if o.Refusal != fsm.None {
		w.t.Fatalf("refused: %d %s", o.Refusal, o.Detail)
	}
	if o.Data == nil {
		return nil
	}
	d, err := DecodeDescriptor(o.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) refused(c Change, want fsm.Refusal) {
	w.t.Helper()
	before := w.s.View().Version()
	if o := w.apply(c.Command()); o.Refusal != want || o.Detail == "" {
		w.t.Errorf("refusal %d %q, want %d with a detail", o.Refusal, o.Detail, want)
	}
	if w.s.View().Version() != before { // S-3
		w.t.Error("a refused change made a new version")
	}
}

func queue(name string) *fsm.Descriptor {
	return &fsm.Descriptor{Kind: fsm.Queue, Name: name, LockDuration: 60000, MaxDelivery: 10}
}

// S-260
func TestNamesCompareWithoutCaseAndKeepTheirSpelling(t *testing.T) {
	w := newWorld(t)
	w.must(Change{Create: queue("Orders")})
	w.refused(Change{Create: queue("oRDERS")}, fsm.EntityExists)
	if d := w.s.View().Entity("ORDERS"); d == nil || d.Name != "Orders" {
		t.Errorf("found %+v, want Orders", d)
	}
}

// S-259, I21
func TestARecreatedNameIsAnotherEntity(t *testing.T) {
	w := newWorld(t)
	first := w.must(Change{Create: queue("q")})
	w.must(Change{Delete: &Deletion{ID: first.ID}})
	second := w.must(Change{Create: queue("q")})
	if first.ID == second.ID {
		t.Fatal("the id was used twice")
	}
	w.refused(Change{Delete: &Deletion{ID: first.ID}}, fsm.EntityNotFound)
	if w.s.View().Entity("q") == nil {
		t.Error("a late delete of the first hit the second")
	}
}

// S-261, S-312
func TestWhatIsFrozenAtCreationIsRefused(t *testing.T) {
	w := newWorld(t)
	was := w.must(Change{Create: queue("q")})
	for name, change := range map[string]func(*fsm.Descriptor){
		"sessions":   func(d *fsm.Descriptor) { d.RequiresSession = true },
		"duplicates": func(d *fsm.Descriptor) { d.DetectDuplicates = true },
		"partitions": func(d *fsm.Descriptor) { d.Partitioned = true },
		"kind":       func(d *fsm.Descriptor) { d.Kind = fsm.Topic },
	} {
		t.Run(name, func(*testing.T) {
			d := queue("q")
			change(d)
			w.refused(Change{Update: d}, fsm.InvalidOperation)
		})
	}
	d := queue("Q")
	d.LockDuration = 30000
	d.Partitions = []fsm.PartitionID{9}
	now := w.must(Change{Update: d})
	if now.ID != was.ID || now.Version <= was.Version || now.LockDuration != 30000 ||
		!reflect.DeepEqual(now.Partitions, was.Partitions) || now.CreatedAt != was.CreatedAt ||
		now.UpdatedAt <= was.UpdatedAt || now.Name != "q" {
		t.Errorf("update gave %+v from %+v", now, was)
	}
	w.refused(Change{Update: queue("none")}, fsm.EntityNotFound)
}

// RUL-21: data partitions count from 1. A1: an ordinary entity has one share, a partitioned one a
// share in every partition.
func TestSharesAreChosenAtCreation(t *testing.T) {
	w := newWorld(t)
	used := map[fsm.PartitionID]int{}
	for i := range 6 {
		d := w.must(Change{Create: queue(fmt.Sprint("q", i))})
		if len(d.Partitions) != 1 || d.Prefix(0) != 0 {
			t.Fatalf("ordinary queue has shares %v, prefix %d", d.Partitions, d.Prefix(0))
		}
		used[d.Partitions[0]]++
	}
	if len(used) != 3 || used[1] != 2 || used[2] != 2 {
		t.Errorf("six queues over three partitions: %v", used)
	}
	p := queue("p")
	p.Partitioned = true
	d := w.must(Change{Create: p})
	if !reflect.DeepEqual(d.Partitions, []fsm.PartitionID{1, 2, 3}) || d.Prefix(2) != 3 || d.ShareOf(2) != 1 ||
		d.ShareOf(7) != -1 {
		t.Errorf("partitioned queue: %+v", d)
	}
}

// A6: an unknown ending asked again gives the same answer, not "already exists".
func TestARepeatedRequestGetsTheFirstAnswer(t *testing.T) {
	w := newWorld(t)
	id := fsm.RequestID{Node: 5, Pump: 1, Counter: 1}
	c := (&Change{Create: queue("q")}).Command()
	first := w.request(id, c)
	again := w.request(id, c)
	if first.Refusal != fsm.None || again.Refusal != fsm.None || !again.Repeated ||
		!bytes.Equal(first.Data, again.Data) {
		t.Errorf("first %+v, again %+v", first, again)
	}
	id.Counter++
	if o := w.request(id, c); o.Refusal != fsm.EntityExists {
		t.Errorf("a new request: %+v", o)
	}
}

// A6: what arrives late is not done again, and what was deleted meanwhile does not come back (I21).
func TestALateCopyOfAnAnsweredRequestChangesNothing(t *testing.T) {
	w := newWorld(t)
	id := fsm.RequestID{Node: 5, Pump: 1, Counter: 1}
	create := (&Change{Create: queue("q")}).Command()
	w.request(id, create)
	next := id
	next.Counter++
	w.request(next, (&Change{Delete: &Deletion{ID: w.s.View().Entity("q").ID}}).Command())
	if o := w.request(id, create); o.Refusal != fsm.InvalidArgument {
		t.Errorf("a late copy: %+v", o)
	}
	if w.s.View().Entity("q") != nil {
		t.Error("the deleted queue is back")
	}
}

// A15: fencing. S-303: what a deposed leader proposes leaves no trace.
func TestEntriesOfAnOldEpochChangeNothing(t *testing.T) {
	w := newWorld(t)
	w.n++
	w.s.Apply(w.n, &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.BecomeLeader{Node: "n2"}}}})
	if o := w.apply((&Change{Create: queue("q")}).Command()); o.Refusal != fsm.NotLeader {
		t.Errorf("refusal %d, want NotLeader", o.Refusal)
	}
	if w.s.View().Entity("q") != nil {
		t.Error("the entry of the old epoch was applied")
	}
}

// RUL-19
func TestANewLifeOfANodeEndsTheOldOne(t *testing.T) {
	w := newWorld(t)
	w.must(Change{Node: &Node{ID: "a", Name: "n1", Incarnation: 7}})
	w.must(Change{Node: &Node{ID: "a", Name: "n1", Incarnation: 8}})
	if !w.s.View().IsLost(7) || w.s.View().IsLost(8) {
		t.Errorf("lost %v, want 7", w.s.View().Lost())
	}
	w.must(Change{Lost: &Loss{Incarnation: 8}})
	w.refused(Change{Node: &Node{ID: "a", Name: "n1", Incarnation: 8}}, fsm.NodeExpired)
}

// RUL-19: a registration that comes when its life is over does not end the life after it, whether it was the
// node's first or not, and one that is asked again changes nothing.
func TestALateRegistrationEndsNoLife(t *testing.T) {
	w := newWorld(t)
	life := func(i, before fsm.Incarnation) Change {
		return Change{Node: &Node{ID: "a", Name: "n1", Incarnation: i}, Before: &before}
	}
	w.must(life(7, 0))
	w.refused(life(6, 0), fsm.Stale) // the first process ended before it was heard
	w.must(life(9, 7))
	w.refused(life(8, 7), fsm.Stale)
	w.must(life(9, 7))
	v := w.s.View()
	if n, _ := v.Node("a"); n.Incarnation != 9 || !v.IsLost(7) || v.IsLost(6) || v.IsLost(8) || v.IsLost(9) {
		t.Errorf("%+v, lost %v", n, v.Lost())
	}
	w.must(life(10, 9))
	w.refused(life(7, 10), fsm.NodeExpired)
}

func TestPlacementIsDoneOnce(t *testing.T) {
	w := newWorld(t)
	w.must(Change{Place: &Placement{Groups: []Group{{ID: 1, Members: []fsm.NodeID{"z"}}, {ID: 9, Members: []fsm.NodeID{"z"}}}}})
	g := w.s.View().Groups()
	if len(g) != 4 || g[0].Members[0] != "a" || g[3].Members[0] != "z" {
		t.Errorf("groups %+v", g)
	}
	for _, bad := range []Group{{ID: 0, Members: []fsm.NodeID{"a"}}, {ID: 40000, Members: []fsm.NodeID{"a"}},
		{ID: 5}, {ID: 5, Members: []fsm.NodeID{"a", "a"}}} {
		w.refused(Change{Place: &Placement{Groups: []Group{bad}}}, fsm.InvalidArgument)
	}
	was := w.s.View().Groups()
	last := was[len(was)-1]
	w.must(Change{Replace: &Exchange{ID: last.ID, From: last.Members, Members: []fsm.NodeID{"y"}}})
	// Two leaders of the catalog may see the same loss; the second exchange is of what is no more.
	w.refused(Change{Replace: &Exchange{ID: last.ID, From: last.Members, Members: []fsm.NodeID{"z"}}},
		fsm.InvalidOperation)
	w.refused(Change{Replace: &Exchange{ID: 77, Members: []fsm.NodeID{"y"}}}, fsm.EntityNotFound)
	now := w.s.View().Groups()
	want := Group{ID: last.ID, Members: []fsm.NodeID{"y"}, Founders: last.Members}
	if got := now[len(now)-1]; !reflect.DeepEqual(got, want) {
		t.Errorf("group %+v, want %+v: whoever comes later founds nothing", got, want)
	}
}

func TestSubscriptionsShareTheirTopicsPartitionAndEndWithIt(t *testing.T) {
	w := newWorld(t)
	topic := w.must(Change{Create: &fsm.Descriptor{Kind: fsm.Topic, Name: "T"}})
	sub := w.must(Change{Create: &fsm.Descriptor{Kind: fsm.Subscription, Name: "t/Subscriptions/S"}})
	if sub.Parent != topic.ID || !reflect.DeepEqual(sub.Partitions, topic.Partitions) {
		t.Errorf("subscription %+v of topic %+v", sub, topic)
	}
	w.refused(Change{Create: &fsm.Descriptor{Kind: fsm.Subscription, Name: "no/subscriptions/S"}}, fsm.EntityNotFound)
	w.must(Change{Delete: &Deletion{ID: topic.ID}})
	if w.s.View().Len() != 0 {
		t.Error("the subscription outlived its topic")
	}
}

func TestHostileChangesAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, data := range []string{"", "{", "null", "{}", `{"create":{}}`, `{"create":{"Name":"x","Kind":99}}`,
		`{"node":{}}`, strings.Repeat("[", 100000), `{"update":{"Name":"` + strings.Repeat("x", 2<<20) + `"}}`} {
		o := w.apply(&fsm.Change{Data: []byte(data)})
		if o.Refusal == fsm.None {
			t.Errorf("%.40q was accepted", data)
		}
	}
	if o := w.apply(&fsm.Enqueue{}); o.Refusal != fsm.InvalidOperation {
		t.Errorf("an enqueue in the catalog: %+v", o)
	}
}

// S-281, S-282: two replicas agree, and an image stands for the log before it.
func TestAnImageStandsForItsLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := newWorld(t), newWorld(t)
	for i := range 3000 {
		c := randomChange(rng)
		id := fsm.RequestID{Node: 1, Pump: rng.Uint64N(5), Counter: rng.Uint64N(50)}
		oa, ob := a.request(id, c.Command()), b.request(id, c.Command())
		if !reflect.DeepEqual(oa, ob) {
			t.Fatalf("step %d: %+v against %+v", i, oa, ob)
		}
		if rng.IntN(100) == 0 {
			img := b.s.Capture()
			fresh := New()
			var buf bytes.Buffer
			if _, err := img.WriteTo(&buf); err != nil {
				t.Fatal(err)
			}
			buf.WriteString("next")
			if err := fresh.Restore(&buf); err != nil {
				t.Fatal(err)
			}
			if buf.String() != "next" {
				t.Fatalf("restore read %d bytes too many", 4-buf.Len())
			}
			b.s = fresh
		}
	}
	if x, y := dump(t, a.s), dump(t, b.s); x != y {
		t.Errorf("images differ:\n%.400s\n%.400s", x, y)
	}
}

func randomChange(rng *rand.Rand) Change {
	name := fmt.Sprint("q", rng.IntN(20))
	switch rng.IntN(5) {
	case 0, 1:
		d := queue(name)
		d.Partitioned = rng.IntN(2) == 0
		return Change{Create: d}
	case 2:
		d := queue(name)
		d.MaxDelivery = rng.Uint32N(9)
		return Change{Update: d}
	case 3:
		return Change{Delete: &Deletion{ID: fsm.EntityID(rng.IntN(300))}}
	}
	return Change{Node: &Node{ID: fsm.NodeID(name), Incarnation: fsm.Incarnation(rng.IntN(9))}}
}

func dump(t *testing.T, s *State) string {
	var buf bytes.Buffer
	if _, err := s.Capture().WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestDamagedImagesAreErrors(t *testing.T) {
	w := newWorld(t)
	w.must(Change{Create: queue("q")})
	img := dump(t, w.s)
	for i := range img {
		for _, bad := range []string{img[:i], img[:i] + string(img[i]^0x40) + img[i+1:]} {
			if err := New().Restore(strings.NewReader(bad)); err == nil {
				t.Fatalf("damage at byte %d went unnoticed", i)
			} else if len(bad) == len(img) && !errors.Is(err, fsm.ErrFormat) {
				t.Fatalf("damage at byte %d: %v", i, err)
			}
		}
	}
}

// S-262: an update that names the version it was made from takes back nothing that it has not seen.
func TestAnUpdateFromAnEarlierVersionIsStale(t *testing.T) {
	w := newWorld(t)
	first := w.must(Change{Create: queue("q")})
	other := w.must(Change{Update: queue("q"), Seen: &first.Version})
	w.refused(Change{Update: queue("Q"), Seen: &first.Version}, fsm.Stale)
	w.must(Change{Update: queue("Q"), Seen: &other.Version})
	w.must(Change{Delete: &Deletion{ID: first.ID}})
	w.refused(Change{Update: queue("q"), Seen: &other.Version}, fsm.EntityNotFound)
	w.must(Change{Create: queue("q")})
	w.refused(Change{Update: queue("q"), Seen: &other.Version}, fsm.Stale)
	w.must(Change{Update: queue("q")}) // of a node that does not know it
}

func TestAViewDoesNotChange(t *testing.T) {
	w := newWorld(t)
	w.must(Change{Create: queue("b")})
	old := w.s.View()
	w.must(Change{Create: queue("a")})
	d := queue("b")
	d.MaxDelivery = 3
	w.must(Change{Update: d})
	if old.Len() != 1 || old.Entity("a") != nil || old.Entity("b").MaxDelivery != 10 {
		t.Error("a later change shows in an older view")
	}
	v := w.s.View()
	if l := v.List(fsm.Queue, 0, -1); len(l) != 2 || l[0].Name != "a" {
		t.Errorf("list %v", l)
	}
	if l := v.List(fsm.Queue, 1, 5); len(l) != 1 || l[0].Name != "b" {
		t.Errorf("second page %v", l)
	}
	n := 0
	v.SharesOf(v.Entity("a").Partitions[0], func(*fsm.Descriptor) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d entities in the partition of a", n)
	}
}

func TestQuestionsAreAnswered(t *testing.T) {
	w := newWorld(t)
	d := w.must(Change{Create: queue("Q")})
	for _, q := range []Question{{Name: "q"}, {ID: d.ID}} {
		a := w.s.Query(fsm.QueryRequest{Query: q.Query()})
		got, err := DecodeDescriptor(a.Data)
		if err != nil || got.ID != d.ID {
			t.Errorf("%+v: %v %v", q, got, err)
		}
	}
	if a := w.s.Query(fsm.QueryRequest{Query: (&Question{Name: "no"}).Query()}); a.Refusal != fsm.EntityNotFound {
		t.Errorf("missing: %+v", a)
	}
	if a := w.s.Query(fsm.QueryRequest{Query: &fsm.Counts{}}); a.Refusal != fsm.InvalidOperation {
		t.Errorf("foreign query: %+v", a)
	}
}
