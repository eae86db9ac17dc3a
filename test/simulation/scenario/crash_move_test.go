package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// journey moves the messages 1, 2 and 3 from a queue of partition 1 to one of partition 2. Its clients
// sit on node 2, which leads neither, so no crash of a leader is anything that they may notice.
type journey struct {
	name string
	from []func(*fsm.Descriptor) // options of the queue in partition 1
	// before is done before anything fails, do while it does.
	before func(b *bench)
	do     func(b *bench)
	// left is what stays in the source, moved what arrives.
	left, moved []string
}

var journeyTexts = []string{"1", "2", "3"}

func journeys() []journey {
	return []journey{
		{"a forward", []func(*fsm.Descriptor){forwardTo("to")}, nil,
			func(b *bench) { b.clientAt(2).send("from", journeyTexts...) }, nil, journeyTexts},
		{"a redrive", nil,
			func(b *bench) {
				c := b.clientAt(2)
				c.send("from", journeyTexts...)
				for _, m := range c.receiver("from").take(3) {
					m.deadLetter("R", "D")
				}
				c.close()
			},
			func(b *bench) { b.redrive(fsm.DeadLetter, 3) }, nil, journeyTexts},
		{"a move of waiting messages", nil,
			func(b *bench) { b.clientAt(2).send("from", journeyTexts...) },
			func(b *bench) { b.redrive(fsm.Main, 3) }, nil, journeyTexts},
		{"a commit over entities", []func(*fsm.Descriptor){lockFor(5 * time.Minute)}, nil,
			func(b *bench) {
				d := b.dealerAt(2)
				b.clientAt(2).send("from", "order")
				m := d.one("from")
				x := d.begin()
				x.send("to", message("1"), message("2"))
				x.complete(m)
				x.send("from", message("kept"))
				x.send("to", message("3"))
				x.commit()
			}, []string{"kept"}, journeyTexts},
	}
}

// redrive sends n messages of a subqueue of the source to the destination, in two commands.
func (b *bench) redrive(sub fsm.SubQueue, n uint64) {
	b.Helper()
	ctx, cancel := b.soon()
	defer cancel()
	from, err := b.lab.Directory(2).Get(ctx, "from")
	b.must("find", err)
	to, err := b.lab.Directory(2).Get(ctx, "to")
	b.must("find", err)
	moved, after := uint64(0), uint64(0)
	for moved < n {
		o, err := b.lab.Front(2).Propose(ctx, fsm.Key{Entity: from.ID, Sub: sub},
			&fsm.Redrive{To: to.ID, Max: 2, After: after})
		b.must("redrive", err)
		want(b, "refusal", o.Refusal, fsm.None)
		moved, after = moved+o.Count, o.Next
	}
	want(b, "moved", moved, n)
}

// set makes the two queues and has nodes 0 and 1 lead their partitions.
func (j *journey) set(b *bench) {
	b.Helper()
	b.queue("to")
	b.queue("from", j.from...)
	want(b, "home of the source", b.home("from"), 1)
	want(b, "home of the destination", b.home("to"), 2)
	for p := range fsm.PartitionID(2) {
		b.must("lead", b.lab.Lead(p+1, int(p)))
	}
	if j.before != nil {
		j.before(b)
	}
}

// outcome checks that everything has arrived, and nothing twice: nobody detects duplicates here.
func (j *journey) outcome(b *bench) {
	b.Helper()
	b.lab.Disarm()
	b.must("lead", b.lab.Led())
	for began := time.Now(); time.Since(began) < 2*time.Minute; b.pass(500 * time.Millisecond) {
		if n := b.counts("from"); n.Transfer == 0 && b.counts("to").Active >= uint64(len(j.moved)) {
			break
		}
	}
	c := b.survivor()
	wantAll(b, "arrived", texts(c.peekAll("to")), j.moved...)
	wantAll(b, "left", texts(c.peekAll("from")), j.left...)
	n := b.counts("from")
	want(b, "dead letters", n.DeadLetter+n.TransferDeadLetter, 0)
	want(b, "on their way", n.Transfer, 0)
}

// S-212, S-236, S-277, S-298, S-324: whatever entry of a journey a leader of either partition fails at,
// while it writes it or when it has just applied it, every message arrives once.
func TestALeaderMayFailAtEveryEntryOfAJourney(t *testing.T) {
	for _, j := range journeys() {
		var first, last [3]uint64
		t.Run(j.name, func(t *testing.T) {
			on(t, labOfPartitions(2), func(b *bench) {
				j.set(b)
				for p := range fsm.PartitionID(3) {
					first[p] = b.lab.Applied(0, p) + 1
				}
				j.do(b)
				j.outcome(b)
				for p := range fsm.PartitionID(3) {
					last[p] = b.lab.Applied(0, p)
				}
			})
			if t.Failed() || last[1]-first[1] < 2 || last[2] < first[2] {
				t.Fatalf("the journey has entries %d to %d", first, last)
			}
			crashed, step := 0, uint64(1)
			if testing.Short() {
				step = 4
			}
			for _, point := range []simulation.Point{simulation.BeforeStored, simulation.AfterApplied} {
				for p := fsm.PartitionID(1); p <= 2; p++ {
					for index := first[p]; index <= last[p]; index += step {
						j.crash(t, p, point, index, index-first[p], &crashed)
					}
				}
			}
			if want := int(last[1]-first[1]+last[2]-first[2]) / 2; crashed < want/int(step) {
				t.Errorf("%d leaders were crashed, want %d", crashed, want)
			}
			t.Logf("%d leaders crashed", crashed)
		})
	}
}

func (j *journey) crash(t *testing.T, p fsm.PartitionID, point simulation.Point, index, at uint64, crashed *int) {
	t.Run(fmt.Sprintf("partition %d, point %d, entry %d", p, point, at), func(t *testing.T) {
		on(t, labOfPartitions(2), func(b *bench) {
			j.set(b)
			down := b.lab.CrashAt(p, point, index)
			j.do(b)
			b.pass(2 * time.Second)
			select {
			case <-down:
				*crashed++
			default: // it took fewer entries this time
			}
			j.outcome(b)
		})
	})
}
