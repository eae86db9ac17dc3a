package transport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// keysOf returns a key for each of n shares.
func keysOf(n int) []string {
	keys := make([]string, n)
	for i, left := 0, n; left > 0; i++ {
		key := fmt.Sprint("key ", i)
		if at := fsm.KeyShare(key, n); keys[at] == "" {
			keys[at] = key
			left--
		}
	}
	return keys
}

// through attaches a sender to via that names another destination.
func (d *deal) through(handle uint32, via, to string) {
	d.t.Helper()
	a := senderTo(handle, via)
	w := amqp.BeginSymbolMap(nil)
	w.String(transferDestination, to)
	a.Properties = w.End()
	d.c.attach(0, a)
	expect[*amqp.Flow](d.c)
}

// S-211, S-236: x-opt-via-partition-key selects the share of the entity through which a message goes;
// the message's own key is that of its destination.
func TestAViaPartitionKeySelectsTheShare(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a", partitioned)
		b.broker.queue("b", partitioned)
		d := newDeal(t, b)
		defer d.c.close()
		d.through(6, "a", "b")
		keys := keysOf(3)
		both := func(via string) []byte {
			w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
			w.String(annPartitionKey, keys[0])
			w.String(annViaPartitionKey, via)
			return append(w.End(), amqp.AppendData(nil, []byte("x"))...)
		}
		for share := range 3 {
			id := d.declare()
			for _, step := range []string{d.send(6, id, both(keys[share])), d.send(6, id, annotated(annPartitionKey, keys[1]))} {
				if step != "(Accepted)" {
					t.Errorf("send: %s", step)
				}
			}
			if got := d.send(6, id, both(keys[(share+1)%3])); !strings.HasPrefix(got, "amqp:not-allowed All operations") {
				t.Errorf("another via key: %s", got)
			}
			d.discharge(id, false)
			k := d.keys[len(d.keys)-1]
			if d.ops() != "via a: a->b x1 a->b x1" || k.By != fsm.ByShare || int(k.Share) != share {
				t.Errorf("share %d: %s at %+v", share, d.ops(), k)
			}
			if state := d.transfer(6, nil, both(keys[share])); state != (amqp.Accepted{}) {
				t.Errorf("without a transaction: %s", stateText(state))
			}
			a, err := b.broker.Query(t.Context(), waist.ShareKey(b.broker.entities["a"], fsm.Main, share), &fsm.Counts{})
			if err != nil || a.Counts.Transfer != 1 {
				t.Errorf("share %d has %d on their way, %v", share, a.Counts.Transfer, err)
			}
		}
		id := d.declare()
		for name, bad := range map[string][]byte{
			"too long": both(strings.Repeat("x", maxIDChars+1)),
			"a number": annotated(annViaPartitionKey, int64(5)),
		} {
			if got := d.send(6, id, bad); !strings.HasPrefix(got, "com.microsoft:argument-error x-opt-via-partition-key") {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}

// S-234, T-230: what is settled in one share does not go together with a key of another.
func TestATransactionOfOneShareOnly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a", partitioned)
		d := newDeal(t, b)
		defer d.c.close()
		keys := keysOf(3)
		d.sender(2, "a")
		for _, k := range keys {
			d.transfer(2, nil, annotated(annPartitionKey, k))
		}
		var list []*amqp.Transfer
		for i, tr := range d.take(5, "a", 3) {
			if list = append(list, tr); len(list) != i+1 {
				t.Fatal("a message is missing")
			}
		}
		shareOf := func(tr *amqp.Transfer) int {
			tag := amqp.UUID(tr.DeliveryTag)
			return b.broker.entities["a"].ShareOf(fsm.LockToken(amqp.GuidTag(tag)).Prefix())
		}
		id := d.declare()
		if got := d.settle(list[0], id, amqp.Accepted{}); got != "(Accepted)" {
			t.Fatal(got)
		}
		at := shareOf(list[0])
		for share, k := range keys {
			got := d.send(2, id, annotated(annPartitionKey, k))
			if refused := strings.HasPrefix(got, "amqp:not-allowed All operations"); refused == (share == at) {
				t.Errorf("settled in share %d, sent to %d: %s", at, share, got)
			}
		}
		if got := d.settle(list[1], id, amqp.Accepted{}); !strings.HasPrefix(got, "amqp:not-allowed All operations") {
			t.Errorf("settled in two shares: %s", got)
		}
		id = d.declare()
		d.send(2, id, annotated(annPartitionKey, keys[(at+1)%3]))
		if got := d.settle(list[0], id, amqp.Accepted{}); !strings.HasPrefix(got, "amqp:not-allowed All operations") {
			t.Errorf("sent to one share, settled in another: %s", got)
		}
	})
}

// S-234, RUL-34: partition keys are compared, of sends and of settlements: two that fall into one share by
// chance are refused, and the rest of the transaction stays open.
func TestATransactionOfOneKeyOnly(t *testing.T) {
	same := func() (one, other string) { // of three shares
		one = keysOf(3)[0]
		for i := 0; ; i++ {
			if other = fmt.Sprint("other ", i); fsm.KeyShare(other, 3) == fsm.KeyShare(one, 3) {
				return one, other
			}
		}
	}
	one, other := same()
	for name, changes := range map[string]func(*fsm.Descriptor){
		"queue":               func(*fsm.Descriptor) {},
		"duplicates detected": func(d *fsm.Descriptor) { d.DetectDuplicates, d.DuplicateWindow = true, 600_000 },
		"sessions":            withSessions,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("a", partitioned, changes)
				d := newDeal(t, b)
				defer d.c.close()
				d.sender(2, "a")
				message := func(key string) []byte {
					switch name {
					case "sessions":
						return encoded("x", func(p *amqp.Properties) { p.GroupID = []byte(key) })
					case "duplicates detected":
						return encoded(key)
					}
					return annotated(annPartitionKey, key)
				}
				var list []*amqp.Transfer
				for i, key := range []string{one, other} {
					d.transfer(2, nil, message(key))
					attach := receiverOf(uint32(5+i), "a")
					if name == "sessions" {
						attach = sessionReceiverOf(uint32(5+i), "a", key)
					}
					list = append(list, d.takeBy(attach, 1)...)
				}
				id := d.declare()
				steps := []struct {
					what, got string
					refused   bool
				}{
					{"settle the first", d.settle(list[0], id, amqp.Accepted{}), false},
					{"settle the other", d.settle(list[1], id, amqp.Accepted{}), true},
					{"send the other key", d.send(2, id, message(other)), true},
					{"send the same key", d.send(2, id, message(one)), false},
				}
				for _, s := range steps {
					const why = "amqp:not-allowed All operations of a transaction on a partitioned entity"
					if strings.HasPrefix(s.got, why) != s.refused || !s.refused && s.got != "(Accepted)" {
						t.Errorf("%s: %s", s.what, s.got)
					}
				}
				if text := d.discharge(id, false); text != "Accepted" || len(d.commits) != 1 || len(d.commits[0].Ops) != 2 {
					t.Errorf("commit: %s, %d commits", text, len(d.commits))
				}
			})
		})
	}
}
