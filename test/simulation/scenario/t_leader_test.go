package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/simulation"
)

// S-4: whoever leads, whoever stops leading while a request is under way, and whatever its node has heard of
// that: a client is told nothing of it. Its node finds the leader and asks under the same request id, so
// that the request is done, and once. The client's node has no replica, so that it depends on the others for
// everything.
func TestNobodyHearsWhoLeads(t *testing.T) {
	changes := map[string]struct {
		before, during func(b *bench, leader int)
	}{
		"another leads by now":                  {before: func(b *bench, leader int) { b.handOver(leader) }},
		"another leads while it is under way":   {during: func(b *bench, leader int) { b.handOver(leader) }},
		"the leader dies first":                 {before: func(b *bench, leader int) { b.lab.Crash(leader, true) }},
		"the leader dies while it is under way": {during: func(b *bench, leader int) { b.lab.Crash(leader, true) }},
		"the leader is cut off while it is under way": {during: func(b *bench, leader int) {
			heal := b.lab.Isolate(leader)
			b.pass(5 * time.Second)
			heal()
		}},
	}
	step := 1
	if testing.Short() {
		step = 4
	}
	rows := slices.Concat(loggedSends(), loggedReceives(), loggedSessions())
	for name, change := range changes {
		for i := 0; i < len(rows); i += step {
			t.Run(rows[i].name+", "+name, func(t *testing.T) {
				on(t, simulation.LabConfig{Nodes: 4}, func(b *bench) {
					rows[i].runWhile(b, change.before, change.during)
				})
			})
		}
	}
}

// handOver makes another holder of a replica the leader of partition 1.
func (b *bench) handOver(leader int) {
	b.Helper()
	holders := b.lab.Holders(1)
	at := slices.Index(holders, leader)
	b.must("lead", b.lab.Lead(1, holders[(at+1)%len(holders)]))
}

func (l *logged) runWhile(b *bench, before, during func(b *bench, leader int)) {
	b.queue("q", lockFor(5*time.Minute))
	b.queue("s", sessions, lockFor(5*time.Minute))
	outside := 0
	for slices.Contains(b.lab.Holders(1), outside) {
		outside++
	}
	do := l.set(b, b.clientAt(outside))
	b.pass(time.Second)
	leader := b.lab.Leader(1)
	_, index := b.lab.Digest(leader, 1)
	if before != nil {
		before(b, leader)
	}
	at := time.Now()
	done := b.later(do)
	if during != nil {
		b.pass(3 * time.Millisecond) // it takes about twice that
		during(b, leader)
	}
	b.must(l.name, <-done)
	b.about("the answer", time.Now(), at, 10*time.Second)
	b.must("start", b.lab.Start(leader))
	b.must("serve", b.lab.Settled())
	l.check(b, b.lab.Leader(1), index)
}
