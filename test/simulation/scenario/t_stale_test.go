package scenario

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/auth"
	marks "github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/rest"
)

// staleAnswer is a page of messages from the operations API of a node.
type staleAnswer struct {
	status   int
	header   http.Header
	Messages []struct {
		SequenceNumber uint64 `json:"sequenceNumber"`
	} `json:"messages"`
	Stale rest.StaleView `json:"stale"`
	Error string         `json:"error"`
}

// lookAt asks the operations API of a node for messages of q as that node has them. It takes no time: the
// node asks nobody.
func (b *bench) lookAt(node int, handle string) (a staleAnswer) {
	b.Helper()
	name, key := b.lab.Policy()
	policies, err := auth.New(0)
	b.must("policies", err)
	b.must("policy", policies.Replace("", auth.Policy{Name: name, Primary: auth.Secret(key), Rights: auth.All}))
	front := b.lab.Front(node)
	api, err := rest.NewOperator(rest.OperatorDeps{
		Entities: b.lab.Directory(node), Shares: front, Replicas: b.lab.Router(node), Policies: policies,
		Suspend: b.lab.Directory(node).Suspend, Now: time.Now,
		Show:           func(d *fsm.Delivery) (any, error) { return transport.Show(d) },
		Look:           transport.Look,
		Transactions:   func(entity string, ended bool) any { return front.Transactions(entity, ended) },
		Holder:         func(fsm.RequestID) (client, link, remote string) { return "", "", "" },
		RequestTimeout: time.Minute, Log: hclog.NewNullLogger(),
		Refusals: marks.New(1, hclog.NewNullLogger(), time.Now),
	})
	b.must("operations API", err)
	r := httptest.NewRequest("GET", rest.OperatorPrefix+"q/messages?stale=true&atLeast="+handle, nil)
	r.Header.Set("Authorization", auth.NewToken("http://x/q", name, key, time.Now().Add(time.Hour)))
	w := httptest.NewRecorder()
	began := time.Now()
	api.ServeHTTP(w, r)
	want(b, "time that the answer took", time.Since(began), 0)
	a.status, a.header = w.Code, w.Result().Header
	b.must("answer", json.Unmarshal(w.Body.Bytes(), &a))
	if a.status == http.StatusOK {
		want(b, "header of the handle", a.header.Get("Busbar-Applied"), a.Stale.Handle)
		want(b, "header of the age", a.header.Get("Busbar-Age"), strconv.FormatInt(a.Stale.AgeMillis, 10))
	}
	return a
}

// T-262; S-305: a follower that was cut off 5 s ago answers with what it has, its index and its age. Who
// has seen more is not answered by it until it has caught up.
func TestT262AStaleReadTellsItsAgeAndNeverGoesBack(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		p := b.home("q")
		b.must("lead", b.lab.Lead(p, 0))
		b.must("lead the catalog", b.lab.Lead(fsm.CatalogPartition, 0))
		c := b.clientAt(0)
		c.send("q", "1", "2")
		b.pass(2 * time.Second)
		const near, far = 0, 2
		for node := range b.lab.Nodes() {
			a := b.lookAt(node, "")
			want(b, "messages", len(a.Messages), 2)
			if a.Stale.AgeMillis > 1_000 { // an idle leader speaks twice a second, and a word is as old as the one before
				b.Errorf("node %d is %d ms behind an idle leader", node, a.Stale.AgeMillis)
			}
		}

		heal := b.lab.Isolate(far)
		c.send("q", "3")
		b.pass(5 * time.Second)
		old := b.lookAt(far, "")
		want(b, "messages of who is cut off", len(old.Messages), 2)
		if age := old.Stale.AgeMillis; age < 5_000 || age > 6_100 {
			b.Errorf("cut off for 5 s: %d ms old", age)
		}
		for _, a := range old.Stale.Applied {
			want(b, "index", a.Index, b.lab.Applied(far, a.Partition))
		}
		now := b.lookAt(near, old.Stale.Handle)
		want(b, "messages of the leader", len(now.Messages), 3)
		if now.Stale.AgeMillis > 1_000 {
			b.Errorf("the leader takes itself to be %d ms old", now.Stale.AgeMillis)
		}
		back := b.lookAt(far, now.Stale.Handle)
		want(b, "status of who would go back", back.status, http.StatusServiceUnavailable)
		want(b, "time to wait", back.header.Get("Retry-After"), "1")

		heal()
		b.pass(10 * time.Second)
		again := b.lookAt(far, now.Stale.Handle)
		want(b, "messages of who came back", len(again.Messages), 3)
		if again.Stale.AgeMillis > 1_000 {
			b.Errorf("10 s after the cut: %d ms old", again.Stale.AgeMillis)
		}
	})
}

// S-305: through one handle nobody ever sees less than before, whichever node is asked while the queue
// grows; and the leader that was cut off knows that it is getting old.
func TestT262OneHandleOverAllNodes(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		p := b.home("q")
		b.must("lead", b.lab.Lead(p, 0))
		c := b.clientAt(1)
		handle, seen, refused := "", 0, 0
		for i := range 60 {
			c.send("q", "x")
			a := b.lookAt(i%3, handle)
			if a.status == http.StatusServiceUnavailable {
				refused++
				continue
			}
			want(b, "status", a.status, http.StatusOK)
			if len(a.Messages) < seen {
				b.Fatalf("%d messages after %d", len(a.Messages), seen)
			}
			handle, seen = a.Stale.Handle, len(a.Messages)
		}
		if seen < 50 || refused > 50 {
			b.Errorf("%d messages seen, %d times refused", seen, refused)
		}
		heal := b.lab.Isolate(0)
		defer heal()
		b.pass(3 * time.Second)
		if a := b.lookAt(0, ""); a.Stale.AgeMillis < 3_000 {
			b.Errorf("a leader that was cut off 3 s ago says %d ms", a.Stale.AgeMillis)
		}
	})
}

// S-305: a node without a replica says so, and which nodes have one.
func TestT262ANodeWithoutAReplicaSaysSo(t *testing.T) {
	on(t, simulation.LabConfig{Nodes: 4}, func(b *bench) {
		b.queue("q")
		b.pass(2 * time.Second)
		holders := b.lab.Holders(b.home("q"))
		for node := range b.lab.Nodes() {
			status := http.StatusMisdirectedRequest
			if slices.Contains(holders, node) {
				status = http.StatusOK
			}
			a := b.lookAt(node, "")
			want(b, "status", a.status, status)
		}
	})
}
