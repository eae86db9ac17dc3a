package transport

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// scene is a broker with messages in every state, and a client with every kind of link to it.
type scene struct {
	t      *testing.T
	b      *bubble
	c      *rawClient
	nodes  map[string]uint32 // handle of the request link of a management node
	locked map[string]fsm.Delivery
	number map[string]fsm.SequenceNumber
	last   uint32 // the last delivery id that the client used
	asking string // what is being tried
	link   string // associated-link-name of the next requests, "" for none
}

// sceneBytes is the message limit of the scene's entities.
const sceneBytes = 16 << 10

func newScene(t *testing.T, b *bubble) *scene {
	s := &scene{t: t, b: b, c: b.client(), nodes: map[string]uint32{}, locked: map[string]fsm.Delivery{},
		number: map[string]fsm.SequenceNumber{}, last: 100}
	small := func(d *fsm.Descriptor) { d.MaxMessageBytes = sceneBytes }
	orders := b.broker.queue("orders", small)
	grouped := b.broker.queue("grouped", small, withSessions)
	spread := b.broker.queue("spread", small, partitioned)
	b.broker.queue("taken back", withSessions, func(d *fsm.Descriptor) { d.Status = fsm.ReceiveDisabled })
	s.enqueue(orders, fsm.Main, "active", "locked", "deferred", "dead", "dead too", "scheduled")
	s.enqueue(grouped, fsm.Main, "in session")
	s.enqueue(spread, fsm.Main, "spread 1", "spread 2", "spread 3")
	for _, name := range []string{"locked", "deferred", "dead", "dead too"} {
		s.lock(orders, fsm.Main, name)
	}
	s.settle(orders, "deferred", fsm.Defer)
	s.settle(orders, "dead", fsm.Kill)
	s.settle(orders, "dead too", fsm.Kill)
	s.lock(orders, fsm.DeadLetter, "dead")
	s.c.authenticate()
	s.c.attach(0, senderTo(2, "orders"))
	expect[*amqp.Flow](s.c)
	s.c.attach(0, senderTo(3, "grouped"))
	expect[*amqp.Flow](s.c)
	s.c.attach(0, senderTo(4, "spread"))
	expect[*amqp.Flow](s.c)
	a := receiverOf(5, "grouped")
	w := amqp.BeginSymbolMap(nil)
	w.String(string(amqp.FilterSession), "s")
	a.Source.Filter = w.End()
	s.c.attach(0, a)
	for i, node := range []string{"orders", "orders/$DeadLetterQueue", "grouped", "grouped/$DeadLetterQueue", "spread", "taken back"} {
		s.nodes[node] = uint32(10 + 2*i)
		s.c.attachPair(0, s.nodes[node], node+"/$management", node+"-reply")
		s.c.send(0, credit(s.nodes[node]+1, 0, 10_000, false))
	}
	if code, _, text := s.ask("grouped", "set-session-state", amqp.Map{
		{Key: "session-id", Value: "s"}, {Key: "session-state", Value: []byte("checkpoint")}}); code != 200 {
		t.Fatalf("session state: %d %s", code, text)
	}
	return s
}

// encoded is a message whose body and id are text.
func encoded(text string, edit ...func(*amqp.Properties)) []byte {
	p := &amqp.Properties{MessageID: amqp.AppendString(nil, text)}
	for _, f := range edit {
		f(p)
	}
	return append(amqp.AppendProperties(nil, p), amqp.AppendData(nil, []byte(text))...)
}

func (s *scene) propose(d *fsm.Descriptor, sub fsm.SubQueue, share int, cmd fsm.Command) fsm.Outcome {
	s.t.Helper()
	out, err := s.b.broker.Propose(context.Background(), fsm.RequestID{}, waist.ShareKey(d, sub, share), cmd)
	if err != nil || out.Refusal != fsm.None {
		s.t.Fatalf("%T: %v, %d %s", cmd, err, out.Refusal, out.Detail)
	}
	return out
}

func (s *scene) enqueue(d *fsm.Descriptor, sub fsm.SubQueue, texts ...string) {
	s.t.Helper()
	for i, text := range texts {
		raw := encoded(text, func(p *amqp.Properties) {
			if d.RequiresSession {
				p.GroupID = []byte("s")
			}
		})
		m, _, _, bad := translateMessage(raw, d, noID)
		if bad != nil {
			s.t.Fatal(bad)
		}
		if strings.HasPrefix(text, "scheduled") {
			m.ScheduledAt = fsm.Wall(time.Now().Add(24 * time.Hour).UnixMilli())
		}
		out := s.propose(d, sub, i%len(d.Partitions), &fsm.Enqueue{Messages: []fsm.Message{m}})
		s.number[text] = out.Numbers[0]
	}
}

// lock takes messages until it has the one; those before it go back.
func (s *scene) lock(d *fsm.Descriptor, sub fsm.SubQueue, text string) {
	s.t.Helper()
	out := s.propose(d, sub, 0, &fsm.Lock{Max: 10})
	var back []fsm.SettleItem
	for _, m := range out.Locked {
		if m.Seq == s.number[text] {
			s.locked[text] = m
		} else {
			back = append(back, fsm.SettleItem{Token: m.Token, Verdict: fsm.Return})
		}
	}
	if s.locked[text].Token.IsZero() {
		s.t.Fatalf("%s is not there", text)
	}
	if len(back) > 0 {
		s.propose(d, sub, 0, &fsm.Settle{Items: back})
	}
}

func (s *scene) settle(d *fsm.Descriptor, text string, v fsm.Verdict) {
	s.t.Helper()
	s.propose(d, fsm.Main, 0, &fsm.Settle{Items: []fsm.SettleItem{{Token: s.locked[text].Token, Verdict: v}}})
}

func (s *scene) token(text string) amqp.UUID { return amqp.UUID(s.locked[text].Token) }

// picture is everything that a user could see of the scene's entities.
func (s *scene) picture() string {
	s.t.Helper()
	var out strings.Builder
	for _, name := range []string{"orders", "grouped", "spread"} {
		d, err := s.b.broker.Entity(context.Background(), name)
		if err != nil {
			s.t.Fatal(err)
		}
		for share := range d.Partitions {
			for sub := fsm.Main; sub <= fsm.TransferDeadLetter; sub++ {
				for _, q := range []fsm.Query{&fsm.Counts{}, &fsm.Browse{Max: 100}, &fsm.ListLocks{Max: 100}, &fsm.ListSessions{Max: 100}} {
					a, err := s.b.broker.Query(context.Background(), waist.ShareKey(d, sub, share), q)
					if err != nil {
						s.t.Fatal(err)
					}
					a.Counts.AccessedAt = 0 // a refused command may count as use, a peek does
					fmt.Fprintf(&out, "%s/%d/%s %T %+v\n", name, share, sub, q, a)
				}
			}
		}
	}
	_, body, _ := s.ask("grouped", "get-session-state", amqp.Map{{Key: "session-id", Value: "s"}})
	fmt.Fprintf(&out, "%+v", body)
	return out.String()
}

// ask sends a management request and returns status, body and description of the answer. body may be
// nil: then the request has none.
func (s *scene) ask(node, op string, body any) (code int64, answer amqp.Map, text string) {
	code, _, answer, text = s.askFully(node, "com.microsoft:"+op, body)
	return code, answer, text
}

func (s *scene) askFully(node, op string, body any) (code int64, condition string, answer amqp.Map, text string) {
	s.t.Helper()
	out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"), ReplyTo: []byte(node + "-reply")})
	w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
	if op != "" {
		w.String("operation", op)
	}
	if s.link != "" {
		w.String("associated-link-name", s.link)
	}
	out = w.End()
	if body != nil {
		var err error
		if out, err = amqp.AppendValueBody(out, body); err != nil {
			s.t.Fatal(err)
		}
	}
	s.last++
	for part := out; ; {
		n := min(len(part), 4_000)
		tr := transferOf(s.nodes[node], s.last)
		tr.Settled, tr.More = amqp.Some(true), n < len(part)
		s.c.send(0, tr, part[:n])
		if part = part[n:]; len(part) == 0 {
			break
		}
	}
	for payload := []byte(nil); ; {
		p, part := s.c.next()
		if _, ok := p.(*amqp.Flow); ok {
			continue
		}
		tr, ok := p.(*amqp.Transfer)
		if !ok {
			s.t.Fatalf("%s: got %s", s.asking, describe(0, p))
		}
		if payload = append(payload, part...); tr.More {
			continue
		}
		m, err := amqp.ParseMessage(payload)
		if err != nil {
			s.t.Fatal(err)
		}
		v, _ := m.ApplicationProperty("statusCode")
		code, _ = v.Int64()
		v, _ = m.ApplicationProperty("errorCondition")
		condition, _ = v.Text()
		v, _ = m.ApplicationProperty("statusDescription")
		text, _ = v.Text()
		if m.BodyCode == amqp.CodeAMQPValue {
			v, err := amqp.SectionValue(m.Body).Value()
			if err != nil {
				s.t.Fatal(err)
			}
			answer, _ = v.(amqp.Map)
		}
		return code, condition, answer, text
	}
}
