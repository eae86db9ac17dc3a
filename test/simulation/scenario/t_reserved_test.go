package scenario

import (
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// schedule schedules a message in the transaction and returns its number.
func (t *transaction) schedule(entity string, at time.Time, m *goamqp.Message) int64 {
	t.d.b.Helper()
	dueAt(at)(m)
	answer, err := t.d.request(t, entity, "schedule-message", scheduled(t.d.b, m))
	t.d.b.must("schedule", err)
	body, _ := answer.Value.(map[string]any)
	numbers, _ := body["sequence-numbers"].([]int64)
	want(t.d.b, "numbers", len(numbers), 1)
	if numbers[0] <= 0 {
		t.d.b.Fatalf("scheduled in a transaction as number %d", numbers[0])
	}
	return numbers[0]
}

// S-90, S-232, J2: the number that a transaction answers cancels the message after the commit, and nothing
// before it or after a rollback.
func TestANumberOfATransactionCancels(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c, d := b.client(), b.dealer()
		later := time.Now().Add(time.Hour)
		x := d.begin()
		dropped := x.schedule("q", later, message("dropped"))
		b.refused("cancel before the commit", c.cancel("q", dropped), notFound)
		x.rollback()
		b.refused("cancel after the rollback", c.cancel("q", dropped), notFound)
		x = d.begin()
		first, second := x.schedule("q", later, message("first")), x.schedule("q", later, message("second"))
		c.send("q", "between")
		x.commit()
		want(b, "the first number", first, dropped+1)
		want(b, "the second number", second, first+1)
		list := c.peekAll("q")
		wantAll(b, "stored", texts(list), "first", "second", "between")
		wantAll(b, "numbers", seqs(list), first, second, second+1)
		b.must("cancel", c.cancel("q", first))
		b.refused("cancel twice", c.cancel("q", first), notFound)
		b.pass(time.Hour)
		r := c.receiver("q")
		for _, text := range []string{"between", "second"} {
			m := r.one()
			want(b, "delivered", m.text(), text)
			m.complete()
		}
		r.none(time.Minute)
	})
}

// S-232, S-302: the number holds when the leader that issued it is lost before the commit.
func TestANumberOfATransactionSurvivesTheLeader(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c, d := b.bystander(), b.bystandingDealer()
		later := time.Now().Add(time.Hour)
		x := d.begin()
		first, second := x.schedule("q", later, message("first")), x.schedule("q", later, message("second"))
		start := b.crashLeader()
		c.send("q", "between")
		x.commit()
		wantAll(b, "numbers", seqs(c.peekAll("q")), first, second, second+1)
		b.must("cancel", c.cancel("q", first))
		start()
		wantAll(b, "left", texts(c.peekAll("q")), "second", "between")
	})
}

// S-232, S-236: a message that goes through a transfer queue keeps the number of its destination.
func TestANumberOfATransactionIsOfTheDestination(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("a", lockFor(time.Minute))
		b.queue("b")
		c, d := b.client(), b.dealer()
		later := time.Now().Add(time.Hour)
		c.send("a", "order")
		for range 3 {
			c.send("b", "other")
		}
		x := d.begin()
		number := x.schedule("b", later, message("invoice"))
		want(b, "number", number, 4)
		x.complete(d.one("a"))
		x.commit()
		b.pass(time.Second)
		want(b, "scheduled in b", b.counts("b").Scheduled, 1)
		b.must("cancel", c.cancel("b", number))
		want(b, "left", b.counts("b").Scheduled, 0)
	})
}

// S-95, S-235: on a partitioned queue the number is of the partition in which the transaction commits.
func TestANumberOfATransactionIsOfItsPartition(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		c, d := b.client(), b.dealer()
		later := time.Now().Add(time.Hour)
		seen := map[uint16]bool{}
		for _, key := range []string{"k1", "k2", "k3", "k4", "k5", "k6"} {
			x := d.begin()
			number := x.schedule("q", later, message(key, withKey(key)))
			x.send("q", message("beside "+key, withKey(key)))
			x.commit()
			b.must("cancel", c.cancel("q", number))
			seen[uint16(fsm.SequenceNumber(number).Prefix())] = true
		}
		want(b, "scheduled", b.counts("q").Scheduled, 0)
		want(b, "sent", b.counts("q").Active, 6)
		if len(seen) < 2 {
			b.Fatalf("the numbers are of partitions %v", seen)
		}
	})
}
