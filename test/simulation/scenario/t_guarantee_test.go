package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/simulation"
)

// guaranteed is how many messages each kind of work of T-260 is about.
const guaranteed = 150

// guarantee is a kind of work and where its messages end up, each exactly once.
type guarantee struct {
	name string
	// before is done in peace, and so is work; what work returns is called with one text after the
	// other while nodes fail.
	before func(b *bench, c *client)
	work   func(b *bench, c *client) func(text string) error
	ends   []string
}

func guarantees() []guarantee {
	fill := func(queue string) func(*bench, *client) {
		return func(_ *bench, c *client) { c.send(queue, guaranteedTexts()...) }
	}
	sends := func(to string, change ...func(*goamqp.Message)) func(*bench, *client) func(string) error {
		return func(_ *bench, c *client) func(string) error {
			s := c.sender(to)
			return func(text string) error { return s.try(message(text, change...)) }
		}
	}
	return []guarantee{
		{"send", nil, sends("sent"), []string{"sent"}},
		{"forward", nil, sends("from"), []string{"to"}},
		{"topic copies", nil, sends("t"), []string{subA, subB}},
		{"activation", nil, func(_ *bench, c *client) func(string) error {
			s := c.sender("due")
			return func(text string) error { return s.try(message(text, dueAt(time.Now().Add(3*time.Second)))) }
		}, []string{"due"}},
		{"dead-letter", fill("dying"), func(b *bench, c *client) func(string) error {
			r := c.receiver("dying")
			return func(string) error { return r.one().tryDeadLetter("R", "D", nil) }
		}, []string{deadLetters("dying")}},
		{"transaction", fill("orders"), func(b *bench, c *client) func(string) error {
			d := b.dealerAt(c.node)
			return func(string) error {
				m, err := d.receive("orders", nil)
				if err != nil {
					return err
				}
				return d.tryAll(completing(m), sending("bills", message(m.text())))
			}
		}, []string{"bills"}},
	}
}

func guaranteedTexts() (all []string) {
	for i := range guaranteed {
		all = append(all, fmt.Sprintf("%03d", i))
	}
	return all
}

// trouble has nodes fail by chance, all but the one that the clients are connected to, until stop.
func (b *bench) trouble(seed uint64, home int, stop <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		node := (home + 1 + rng.IntN(b.lab.Nodes()-1)) % b.lab.Nodes()
		heal := func() error { return b.lab.Start(node) }
		switch rng.IntN(3) {
		case 0:
			b.lab.Crash(node, true)
		case 1:
			b.lab.Crash(node, false)
		default:
			mend := b.lab.Isolate(node)
			heal = func() error { mend(); return nil }
		}
		b.pass(time.Duration(rng.IntN(1500)) * time.Millisecond)
		if err := heal(); err != nil {
			return err
		}
		if err := b.lab.Settled(); err != nil {
			return err
		}
		b.pass(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
}

// T-260; S-310: while nodes fail, each kind of work does what the table allows: what the broker does by
// itself and what is asked under one request id happens once; a message that is processed under a lock is
// processed at least once and never after it was completed; one that is received and deleted at most once.
func TestT260EveryKindOfWorkKeepsItsGuarantee(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			on(t, simulation.LabConfig{Nodes: 4, Partitions: 2}, func(b *bench) { b.guarantees(seed) })
		})
	}
}

func (b *bench) guarantees(seed uint64) {
	for _, q := range []string{"sent", "to", "due", "dying", "orders", "bills", "deleting"} {
		b.queue(q, lockFor(5*time.Minute))
	}
	b.queue("locking", maxDelivery(100))
	b.queue("from", forwardTo("to"))
	b.topic("t", "a", "b")
	home := int(seed) % b.lab.Nodes()
	all := guarantees()
	var work []<-chan error
	stop := make(chan struct{})
	c := b.clientAt(home)
	c.send("deleting", guaranteedTexts()...)
	c.send("locking", guaranteedTexts()...)
	var doings []func(string) error
	for _, g := range all {
		if g.before != nil {
			g.before(b, c)
		}
		doings = append(doings, g.work(b, b.clientAt(home)))
	}
	trouble := b.later(func() error { return b.trouble(seed, home, stop) })
	for i, g := range all {
		work = append(work, b.later(func() error {
			for _, text := range guaranteedTexts() {
				if err := doings[i](text); err != nil {
					return fmt.Errorf("%s of %s: %w", g.name, text, err)
				}
				b.pass(10 * time.Millisecond)
			}
			return nil
		}))
	}
	work = append(work, b.later(func() error { return b.deletes(home) }),
		b.later(func() error { return b.completes(home) }))
	for _, done := range work {
		b.must("work", <-done)
	}
	close(stop)
	b.must("trouble", <-trouble)
	b.pass(time.Minute)
	for _, g := range all {
		for _, end := range g.ends {
			got := texts(c.peekAll(end))
			slices.Sort(got)
			wantAll(b, g.name+" in "+end, got, guaranteedTexts()...)
		}
	}
	for _, q := range []string{"from", "dying", "orders", "deleting", "locking"} {
		want(b, "left in "+q, len(c.peekAll(q)), 0)
	}
}

// deletes receives and deletes; five clients die with a message that they have not seen. Only those may
// be lost.
func (b *bench) deletes(home int) error {
	const deaths = 5
	seen := map[string]bool{}
	for life := 0; ; life++ {
		c := b.clientAt(home)
		r := c.receiver("deleting", deleting)
		for took := 0; took < 9 || life >= deaths; took++ {
			m, err := r.try(10 * time.Second)
			switch {
			case err != nil:
				return err
			case m == nil && len(seen) < guaranteed-deaths:
				return fmt.Errorf("%d of %d came, and %d clients died", len(seen), guaranteed, life)
			case m == nil:
				return nil
			case seen[m.text()]:
				return fmt.Errorf("%s was received and deleted twice", m.text())
			}
			seen[m.text()] = true
			b.pass(50 * time.Millisecond)
		}
		if err := r.IssueCredit(1); err != nil {
			return err
		}
		b.pass(100 * time.Millisecond)
		c.die()
	}
}

// completes processes under locks; every tenth message is forgotten, and comes again.
func (b *bench) completes(home int) error {
	done, begun := map[string]bool{}, 0
	r := b.clientAt(home).receiver("locking")
	for len(done) < guaranteed {
		m, err := r.try(time.Minute)
		if err != nil || m == nil {
			return fmt.Errorf("after %d of %d: %v, %v", len(done), guaranteed, m, err)
		}
		if done[m.text()] {
			return fmt.Errorf("%s came after it was completed", m.text())
		}
		if begun++; begun%10 == 0 {
			continue
		}
		if err := m.tryComplete(); err != nil {
			return fmt.Errorf("complete %s: %w", m.text(), err)
		}
		done[m.text()] = true
		b.pass(50 * time.Millisecond)
	}
	if begun == guaranteed {
		return fmt.Errorf("no message came twice")
	}
	return nil
}
