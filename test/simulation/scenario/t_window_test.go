package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// T-51; S-133, S-321
func TestT51APartitionDoesNotWaitForAnother(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		for p := range fsm.PartitionID(5) {
			to := 1 + int(p)%2
			if p == 1 {
				to = 0
			}
			b.must("lead", b.lab.Lead(p, to))
		}
		b.lab.SlowDisk(0, 2*time.Second)
		d := b.dealerAt(1)
		h, err := d.sender("q", "")
		b.must("attach", err)
		ids := map[uint32]int{}
		for i := range 100 {
			payload, err := message(fmt.Sprint(i), withKey(fmt.Sprint("k", i))).MarshalBinary()
			b.must("encode", err)
			ids[d.write1(h, nil, payload)] = i
		}
		latest, overtaken := -1, 0
		for len(ids) > 0 {
			f, err := d.await("an outcome", of[*amqp.Disposition])
			b.must("send", err)
			p := f.p.(*amqp.Disposition)
			for id := p.First; id <= p.Last.Or(p.First); id++ {
				if i := ids[id]; i > latest {
					latest = i
				} else {
					overtaken++
				}
				delete(ids, id)
			}
		}
		if overtaken < 10 {
			b.Fatalf("%d messages were acknowledged after later ones", overtaken)
		}
		b.lab.SlowDisk(0, time.Millisecond)
		want(b, "stored", b.counts("q").Active, 100)
	})
}

// T-52; S-134
func TestT52OverlappedSendsShareTheWay(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		s := c.sender("q")
		b.lab.ClientDelay(35 * time.Millisecond)
		for i := range 3 {
			b.lab.SlowDisk(i, 20*time.Millisecond) // 10 on average
		}
		began := time.Now()
		for i := range 10 {
			s.send(message(fmt.Sprint(i)))
		}
		if took := time.Since(began); took < 800*time.Millisecond {
			b.Fatalf("ten sends one after the other took %s", took)
		}
		began = time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if err := s.try(message(fmt.Sprint("o", i))); err != nil {
					b.Errorf("send: %v", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > 300*time.Millisecond {
			b.Fatalf("ten sends at a time took %s", took)
		}
	})
}

// numbersAfter makes the next number of an entity's only share last+1.
func (b *bench) numbersAfter(name string, last uint64) {
	b.Helper()
	ctx, cancel := b.soon()
	defer cancel()
	d, err := b.lab.Directory(b.node()).Get(ctx, name)
	b.must("find", err)
	b.pass(time.Second)
	for _, p := range d.Partitions {
		b.lab.StartAfter(p, d.ID, last)
	}
}

// T-65; S-95, S-96
func TestT65TheNumbersOfAPartitionBeginAnew(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", partitioned)
		b.numbersAfter("q", 1<<48-3)
		c := b.client()
		c.send("q", "1", "2", "3", "4")
		list := c.peek("q", 0, 10)
		wantAll(b, "peeked", texts(list), "1", "2", "3", "4")
		const low = 1<<48 - 1
		wantAll(b, "numbers", []int64{list[0].seq() & low, list[1].seq() & low, list[2].seq() & low,
			list[3].seq() & low}, low-1, low, 0, 1)
		for _, m := range list {
			want(b, "partition", m.seq()>>48, list[0].seq()>>48)
		}
		wantAll(b, "received", texts(c.receiver("q").take(4)), "1", "2", "3", "4")
	})
}

// T-66; S-96
func TestT66ANumberInUseIsNotGivenAgain(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", partitioned)
		c := b.client()
		c.send("q", "first")
		m := c.receiver("q").one()
		m.deferIt()
		const low = 1<<48 - 1
		want(b, "its number", m.seq()&low, 1)
		b.numbersAfter("q", 1<<48-2)
		c.send("q", "a", "b", "c")
		var numbers []int64
		for _, m := range c.receiver("q").take(3) {
			numbers = append(numbers, m.seq()&low)
		}
		wantAll(b, "numbers", numbers, low, 0, 2)
		wantAll(b, "the deferred", texts(c.fetch("q", m.seq())), "first")
	})
}

// T-67; S-95, S-94
func TestT67NoNumberIsNegative(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		b.numbersAfter("q", 1<<63-3)
		c := b.client()
		c.send("q", "1", "2", "3", "4")
		list := c.receiver("q").take(4)
		wantAll(b, "received", texts(list), "1", "2", "3", "4")
		for _, m := range list {
			if m.seq() < 0 || m.enqueuedSeq() < 0 {
				b.Fatalf("%s has number %d", m.text(), m.seq())
			}
		}
		wantAll(b, "numbers", seqs(list), 1<<63-2, 1<<63-1, 0, 1)
	})
}
