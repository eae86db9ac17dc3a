package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// The steps of a move, in their order. After each of them something may die.
const (
	exchanged   = 1 + iota // the catalog wants it
	takenIn                // the target is a member without a vote
	votes                  // the target votes
	removed                // the source is no member
	deleted                // the source has deleted its replica
	lastOfSteps = deleted
)

// S-319, T-271: the catalog's leader, the leader of the partition that moves, its new or its old node dies at each
// step of a move, under load. The move ends all the same, exactly one home serves, and nothing is lost.
func TestT271ACrashAtEachStepOfAMove(t *testing.T) {
	for step := exchanged; step <= lastOfSteps; step++ {
		for _, victim := range []string{"catalog", "leader", "target", "source"} {
			t.Run(fmt.Sprintf("%s after step %d", victim, step), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { crashInMove(t, step, victim) })
			})
		}
	}
}

func crashInMove(t *testing.T, step int, victim string) {
	b, d, sent := loaded(t)
	defer b.close()
	busy := b.createQueue(t.Context(), "n1", queue("busy", true))
	b.grow("n4")
	p, from := b.firstMove()
	b.steps(p, step, from)
	id := fsm.NodeID("n4")
	switch victim {
	case "catalog":
		id = b.leader(fsm.CatalogPartition).Node()
	case "leader":
		id = b.leader(p).Node()
	case "source":
		id = from
	}
	w := b.trafficOf(busy, 20*time.Second, b.others(id)...)
	time.Sleep(50 * time.Millisecond)
	b.kill(id)
	time.Sleep(20 * time.Second)
	b.revive(id)
	b.until("all have their share", func() string { return b.level("n1", "n2", "n3", "n4") })
	w.end()
	b.until("each partition has one home", b.oneHome)
	b.wantActive("n1", d, sent)
}

// oneHome reports a partition that no node leads, or more than one, or of which members take another one for the leader.
func (b *brokers) oneHome() string {
	for _, g := range b.all["n1"].dir.View().Groups() {
		var homes []fsm.NodeID
		for id, n := range b.all {
			if r := n.host.Replica(g.ID); r != nil && r.Leading() {
				homes = append(homes, id)
			}
		}
		if len(homes) != 1 {
			return fmt.Sprintf("partition %d is led by %v", g.ID, homes)
		}
		for _, id := range g.Members {
			if leader, _ := b.all[id].host.Replica(g.ID).Leader(); leader != homes[0] {
				return fmt.Sprintf("partition %d is led by %v, and by %s as %s has it", g.ID, homes, leader, id)
			}
		}
	}
	return ""
}

// firstMove waits for the first exchange, and returns its partition and the node that is to go.
func (b *brokers) firstMove() (p fsm.PartitionID, from fsm.NodeID) {
	b.t.Helper()
	b.until("a partition moves", func() string {
		for _, g := range b.all["n1"].dir.View().Groups() {
			if !slices.Contains(g.Members, "n4") {
				continue
			}
			p = g.ID
			for _, n := range []fsm.NodeID{"n1", "n2", "n3"} {
				if !slices.Contains(g.Members, n) {
					from = n
				}
			}
			return ""
		}
		return "none does"
	})
	return p, from
}

// steps waits until a move has come to a step, or has ended. A move shows each step as another list of members, but for
// the first and the last.
func (b *brokers) steps(p fsm.PartitionID, step int, from fsm.NodeID) {
	b.t.Helper()
	if step == deleted {
		b.until("the source has deleted its replica", func() string {
			if b.all[from].host.Replica(p) != nil {
				return "it is there"
			}
			return ""
		})
		return
	}
	last := b.voters(p)
	for range 100_000 {
		if step == exchanged {
			return
		}
		if now := b.voters(p); now != "" && now != last {
			last = now
			step--
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Fatalf("the move of partition %d is %d steps behind: %s", p, step-exchanged, last)
}
