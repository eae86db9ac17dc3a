package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// T-131 // S-54: an operator releases one lock or one session over HTTP; the holder's next operation is
// refused with the lock it lost, and what is not held is not found.
func TestOperatorsRelease(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders")
	i.send(d, "", "1", "2")
	locked := i.must(d, fsm.Main, 0, &fsm.Lock{Max: 2}).Locked
	release := func(target string, code int) string {
		t.Helper()
		var v map[string]any
		if got := i.ask("POST", "/api/entities/"+target, "", &v); got != code {
			t.Errorf("%s: %d, want %d: %v", target, got, code, v)
		}
		return fmt.Sprint(v["released"])
	}
	one := fmt.Sprintf("orders/release-locks?number=%d", locked[0].Seq)
	if n := release(one, http.StatusOK); n != "1" {
		t.Errorf("released %s", n)
	}
	release(one, http.StatusNotFound)
	release("orders/release-locks", http.StatusBadRequest)
	release("orders/release-session?session=s", http.StatusBadRequest)
	out := i.must(d, fsm.Main, 0, &fsm.Settle{Items: []fsm.SettleItem{
		{Token: locked[0].Token, Verdict: fsm.Complete}, {Token: locked[1].Token, Verdict: fsm.Complete}}})
	if out.Refusals[0] != fsm.MessageLockLost || out.Refusals[1] != fsm.None {
		t.Errorf("the holder hears %v", out.Refusals)
	}
	if again := i.must(d, fsm.Main, 0, &fsm.Lock{Max: 2}).Locked; len(again) != 1 || again[0].Seq != locked[0].Seq {
		t.Errorf("locked again: %+v", again)
	}

	g := i.queue("grouped", grouped)
	i.send(g, "a", "3")
	share := fsm.KeyShare("a", len(g.Partitions))
	held := i.must(g, fsm.Main, share, &fsm.AcceptSession{ID: "a"}).Session
	if n := release("grouped/release-session?session=a", http.StatusOK); n != "1" {
		t.Errorf("released %s sessions", n)
	}
	release("grouped/release-session?session=a", http.StatusNotFound)
	release("grouped/release-session", http.StatusBadRequest)
	key := fsm.Key{Entity: g.ID, By: fsm.ByShare, Share: uint16(share)}
	for _, cmd := range []fsm.Command{&fsm.RenewSession{Session: held}, &fsm.SetSessionState{Session: held}} {
		if out, err := i.Propose(t.Context(), key, cmd); err != nil || out.Refusal != fsm.SessionLockLost {
			t.Errorf("%T of the former holder: %v, %v", cmd, out.Refusal, err)
		}
	}
	if again := i.must(g, fsm.Main, share, &fsm.AcceptSession{ID: "a"}).Session; again.Token == held.Token {
		t.Error("the session has its former token")
	}

	// The history of releases says who took what, and when.
	for entity, want := range map[string]RecordView{
		"orders":  {SequenceNumber: uint64(locked[0].Seq), Operator: root, Deliveries: 1, End: "released"},
		"grouped": {SessionID: "a", Operator: root, End: "released"},
	} {
		records, _ := i.list("/api/entities/"+entity+"/history?kind=releases", "records")
		if len(records) != 1 {
			t.Fatalf("%s: records %v", entity, records)
		}
		var got RecordView
		if err := json.Unmarshal([]byte(records[0]), &got); err != nil {
			t.Fatal(err)
		}
		if got.At == nil || !got.At.Equal(now.Add(-time.Millisecond)) || got.By == "" {
			t.Errorf("%s: released at %v from %q", entity, got.At, got.By)
		}
		got.At, got.EnqueuedAt, got.By = nil, nil, ""
		if got != want {
			t.Errorf("%s: %+v, want %+v", entity, got, want)
		}
	}
}
