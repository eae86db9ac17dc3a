package partition

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// I16, I17: an audit recounts every replica, reads every body, and compares the digests of one entry.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		armed := map[fsm.NodeID]*atomic.Bool{"n1": {}, "n2": {}, "n3": {}}
		b, d := checkpointed(t, armed)
		defer b.close()
		share := 0
		for i, p := range d.Partitions {
			if p == 1 {
				share = i
			}
		}
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(share)}
		for i := range 30 {
			sendOne(t, b.all["n1"].r, reqOf(0, 7, i+1), k)
		}
		ctx := shortly(t, time.Minute)
		o, err := b.all["n1"].r.Propose(ctx, reqOf(0, 8, 1), k, &fsm.Lock{Max: 6})
		if err != nil || len(o.Locked) != 6 {
			t.Fatalf("%+v, %v", o, err)
		}
		var items []fsm.SettleItem
		for i, v := range []fsm.Verdict{fsm.Complete, fsm.Defer, fsm.Kill, fsm.Abandon} {
			items = append(items, fsm.SettleItem{Seq: o.Locked[i].Seq, Token: o.Locked[i].Token, Verdict: v})
		}
		if _, err := b.all["n1"].r.Propose(ctx, reqOf(0, 8, 2), k, &fsm.Settle{Items: items}); err != nil {
			t.Fatal(err)
		}
		for p := range fsm.PartitionID(b.partitions + 1) {
			g := b.all["n2"].dir.AuditGroup(ctx, p)
			if !g.Well() || len(g.Replicas) != 3 {
				t.Fatalf("partition %d is well, but: %+v", p, g)
			}
			if a := g.Replicas[0]; p == 1 && (a.Messages != 29 || a.Bodies != 29 || a.Entities != 1) {
				t.Errorf("counted %+v", a)
			}
		}
		// A body that is gone from one replica.
		bad := b.others(b.leader(1).Node())[0]
		lost := b.nodes[bad].disks[1].bodies
		lost.mu.Lock()
		for i := range lost.entries {
			delete(lost.entries, i)
			break
		}
		lost.mu.Unlock()
		wantProblem(t, b.all["n2"].dir.AuditGroup(ctx, 1), bad, "no body")

		// A state that differs: before the leader finds it by itself, the audit says so.
		armed[bad].Store(true)
		sendOne(t, b.all["n1"].r, reqOf(0, 7, 99), k)
		wantProblem(t, b.all["n2"].dir.AuditGroup(ctx, 1), "", "the leader")

		// A node that is away.
		b.kill(bad)
		wantProblem(t, b.all[b.others(bad)[0]].dir.AuditGroup(ctx, 2), "", fmt.Sprintf("node %s:", bad))
	})
}

func wantProblem(t *testing.T, g GroupAudit, on fsm.NodeID, text string) {
	t.Helper()
	all := g.Problems
	for _, a := range g.Replicas {
		if on == "" || a.Node != on {
			continue
		}
		all = append(all, a.Problems...)
	}
	if !strings.Contains(strings.Join(all, "\n"), text) || g.Well() {
		t.Errorf("want %q on %q: %+v", text, on, g)
	}
}

// A call that asks for an audit may be anything.
func TestAuditAnswersHostileCalls(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1).Node()
		from := c.nodes[c.others(l)[0]].port
		for kind, content := range map[uint8][]byte{KindAudit: {1, 2}, KindCheckpoint: {1}} {
			b, err := from.Call(t.Context(), l, kind, append(verbHead(1, 8), content...))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := openResult(b); err == nil {
				t.Errorf("kind %d took %x", kind, content)
			}
		}
		// An entry that nobody marked is waited for, for a while.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		b, err := from.Call(ctx, l, KindAudit, append(verbHead(1, 8), 0, 0, 0, 0, 0, 0, 99, 99))
		if err == nil {
			b, err = openResult(b)
		}
		if err != nil || !strings.Contains(string(b), "digest behind entry") ||
			time.Since(began) > 2*digestPatience {
			t.Errorf("%s, %v after %v", b, err, time.Since(began))
		}
	})
}

// Nodes that came and went are no problem of a cluster that is well. A voter that does not answer is one.
func TestAuditIsQuietAboutNodesThatLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _, _ := loaded(t)
		defer b.close()
		b.late("n4")
		time.Sleep(time.Minute)
		b.leave("n4")
		time.Sleep(Defaults().ReplaceAfter + 2*time.Minute) // others have its replicas by then
		for p := range fsm.PartitionID(b.partitions + 1) {
			if g := b.all["n2"].dir.AuditGroup(shortly(t, time.Minute), p); !g.Well() || len(g.Replicas) != 3 {
				t.Errorf("partition %d is well, but: %+v", p, g)
			}
		}
		if got := b.voters(0); got != "n1 n2 n3" {
			t.Errorf("the catalog still has %s", got)
		}
		b.kill("n3")
		if g := b.all["n2"].dir.AuditGroup(shortly(t, time.Minute), 0); g.Well() {
			t.Error("a voter that is away is no problem")
		}
	})
}
