package transport

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/rulemap"
)

// subscription creates a topic with a subscription that has the default rule.
func (b *singleBroker) subscription(topic, name string, edit ...func(*fsm.Descriptor)) *fsm.Descriptor {
	if b.entities[strings.ToLower(topic)] == nil {
		b.queue(topic, append(slices.Clone(edit), func(d *fsm.Descriptor) {
			d.Kind, d.RequiresSession = fsm.Topic, false
		})...)
	}
	return b.queue(topic+"/Subscriptions/"+name, append(slices.Clone(edit), func(d *fsm.Descriptor) {
		d.Kind, d.Parent = fsm.Subscription, b.entities[strings.ToLower(topic)].ID
		d.Rules = []fsm.Rule{{Name: fsm.DefaultRuleName, Source: rule.Default(), CreatedAt: 1_700_000_000_000}}
	})...)
}

// PutRule implements Rules as the catalog does.
func (b *singleBroker) PutRule(_ context.Context, id fsm.EntityID, r fsm.Rule, replace bool) (*fsm.Descriptor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[id] == nil {
		return nil, fmt.Errorf("entity %d: %w", id, fsm.ErrNoEntity)
	}
	d := *b.byID[id]
	if d.Rule(r.Name) != nil && !replace {
		return nil, &fsm.RefusedError{Refusal: fsm.EntityExists, Detail: "The rule exists."}
	}
	r.CreatedAt = fsm.Wall(time.Now().UnixMilli())
	d.Rules = append(slices.Clone(d.Rules), r)
	b.putLocked(&d)
	return &d, nil
}

// DropRule implements Rules.
func (b *singleBroker) DropRule(_ context.Context, id fsm.EntityID, name string) (*fsm.Descriptor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[id] == nil {
		return nil, fmt.Errorf("entity %d: %w", id, fsm.ErrNoEntity)
	}
	d := *b.byID[id]
	if d.Rule(name) == nil {
		return nil, fmt.Errorf("rule %q: %w", name, fsm.ErrNoEntity)
	}
	d.Rules = slices.DeleteFunc(slices.Clone(d.Rules), func(r fsm.Rule) bool { return strings.EqualFold(r.Name, name) })
	b.putLocked(&d)
	return &d, nil
}

const ruleNode = "news/Subscriptions/all"

// ruleScene is a client at the management node of a subscription.
func ruleScene(t *testing.T, b *bubble) *scene {
	t.Helper()
	b.broker.subscription("news", "all")
	s := newScene(t, b)
	for i, node := range []string{ruleNode, ruleNode + "/$DeadLetterQueue", "news"} {
		s.nodes[node] = uint32(40 + 2*i)
		s.c.attachPair(0, s.nodes[node], node+"/$management", node+"-reply")
		s.c.send(0, credit(s.nodes[node]+1, 0, 10_000, false))
	}
	return s
}

func ruleMap(name string, description ...any) amqp.Map {
	return mapOf("rule-name", name, "rule-description", mapOf(description...))
}

// rules lists the rules as the client sees them.
func (s *scene) rules() (all []amqp.List) {
	s.t.Helper()
	code, answer, text := s.ask(ruleNode, "enumerate-rules", mapOf("top", int32(100), "skip", int32(0)))
	if code == codeNoContent {
		return nil
	}
	v, _ := answer.Get("rules")
	list, ok := v.(amqp.List) // Go casts it
	if code != codeOK || !ok {
		s.t.Fatalf("%d %s, %T", code, text, v)
	}
	for _, entry := range list {
		d, _ := entry.(amqp.Map).Get("rule-description")
		described := d.(amqp.Described)
		if described.Descriptor != rulemap.CodeRuleDescription {
			s.t.Errorf("descriptor %#x", described.Descriptor)
		}
		all = append(all, described.Value.(amqp.List))
	}
	return all
}

// S-215, S-217: rules come and go over management, and are listed in the original's form.
func TestRulesOverManagement(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := ruleScene(t, b)
		defer s.c.close()
		all := s.rules()
		if len(all) != 1 || all[0][2] != "$Default" || all[0][3] != amqp.Timestamp(1_700_000_000_000) {
			t.Fatalf("at first: %v", all)
		}
		add := func(body amqp.Map) {
			t.Helper()
			if code, _, text := s.ask(ruleNode, "add-rule", body); code != codeOK {
				t.Fatalf("add: %d %s", code, text)
			}
		}
		add(ruleMap("sql", "sql-filter", mapOf("expression", "a > 5"), "sql-rule-action", mapOf("expression", "SET b = 1"), "rule-name", "sql"))
		add(ruleMap("none", "sql-filter", mapOf("expression", "1=0"), "sql-rule-action", nil))
		add(ruleMap("some", "correlation-filter", mapOf("label", "x", "correlation-id", "c", "to", nil,
			"properties", mapOf("i", int32(5), "s", "t", "d", amqp.Timestamp(5000), "u", amqp.UUID{7},
				"span", amqp.Described{Descriptor: rulemap.SymbolTimeSpan, Value: int64(99)}))))
		if code, _, _ := s.ask(ruleNode, "remove-rule", mapOf("rule-name", "$default")); code != codeOK {
			t.Errorf("remove: %d", code)
		}
		all = s.rules() // E5: by name
		if len(all) != 3 {
			t.Fatalf("%d rules", len(all))
		}
		for i, want := range []string{
			fmt.Sprint(amqp.List{amqp.Described{Descriptor: rulemap.CodeFalseFilter, Value: amqp.List{}},
				amqp.Described{Descriptor: rulemap.CodeEmptyAction, Value: amqp.List{}}, "none"}),
			fmt.Sprint(amqp.List{amqp.Described{Descriptor: rulemap.CodeCorrelationFilter, Value: amqp.List{"c", nil, nil, nil, "x", nil, nil, nil,
				mapOf("i", int32(5), "s", "t", "d", amqp.Timestamp(5000), "u", amqp.UUID{7},
					"span", amqp.Described{Descriptor: rulemap.SymbolTimeSpan, Value: int64(99)})}},
				amqp.Described{Descriptor: rulemap.CodeEmptyAction, Value: amqp.List{}}, "some"}),
			fmt.Sprint(amqp.List{amqp.Described{Descriptor: rulemap.CodeSQLFilter, Value: amqp.List{"a > 5", int32(20)}},
				amqp.Described{Descriptor: rulemap.CodeSQLAction, Value: amqp.List{"SET b = 1", int32(20)}}, "sql"}),
		} {
			if got := fmt.Sprint(all[i][:3]); got != want || len(all[i]) != 4 {
				t.Errorf("rule %d is %s, want %s", i, got, want)
			}
		}
		code, answer, _ := s.ask(ruleNode, "enumerate-rules", mapOf("top", int32(1), "skip", int32(1)))
		if v, _ := answer.Get("rules"); code != codeOK || len(v.(amqp.List)) != 1 {
			t.Errorf("a page: %d %v", code, answer)
		}
		for _, name := range []string{"sql", "none", "some"} {
			if code, _, _ := s.ask(ruleNode, "remove-rule", mapOf("rule-name", name)); code != codeOK {
				t.Errorf("remove: %d", code)
			}
		}
		code, condition, answer, text := s.askFully(ruleNode, "com.microsoft:enumerate-rules", mapOf("top", int32(5)))
		if code != codeNoContent || condition != string(symbolRulesNotFound) || answer != nil || text != "No rules found" {
			t.Errorf("no rules: %d %s %v %s", code, condition, answer, text)
		}
	})
}

// N12: an answer has as many rules as are asked for and fit the client's link.
func TestEnumerateRulesFillsTheLink(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.subscription("news", "all")
		b.broker.update(ruleNode, func(d *fsm.Descriptor) {
			for i := range 250 {
				d.Rules = append(d.Rules, fsm.Rule{Name: fmt.Sprintf("r%03d", i), Source: rule.Source{
					Kind: rule.SQLFilter, Expression: "a = '" + strings.Repeat("x", 900) + "'"}})
			}
		})
		s := requestScene(t, b, ruleNode)
		defer s.c.close()
		answer := s.want(codeOK, ruleNode, "enumerate-rules", mapOf("top", int32(1000), "skip", int32(0)))
		list, _ := answer.Get("rules")
		if n := len(list.(amqp.List)); n != 251 {
			t.Errorf("%d rules of 251", n)
		}
	})
}

// The bytes of a default rule are those that the service writes (amqp-protocol.md 7.5).
func TestTheDefaultRuleOnTheWire(t *testing.T) {
	r := fsm.Rule{Name: "$Default", Source: rule.Default(), CreatedAt: 1}
	got, err := amqp.AppendValue(nil, rulemap.Describe(&r))
	want := []byte("\x00\x80\x00\x00\x01\x37\x00\x00\x00\x04\xc0\x2a\x04\x00\x80\x00\x00\x00\x13\x70\x00\x00\x07\x45" +
		"\x00\x80\x00\x00\x01\x37\x00\x00\x00\x05\x45\xa1\x08$Default\x83\x00\x00\x00\x00\x00\x00\x00\x01")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got  %x, %v\nwant %x", got, err, want)
	}
}

// T-57: what cannot be a rule is refused with the reason, and no rule changes.
func TestBadRulesAreRefused(t *testing.T) {
	sql := func(expression any) []any { return []any{"sql-filter", mapOf("expression", expression)} }
	rows := []badRequest{
		{"no name", ruleNode, "add-rule", fields("rule-description", mapOf(sql("1=1")...)), badArgument, "rule-name must be"},
		{"an empty name", ruleNode, "add-rule", fields("rule-name", "", "rule-description", mapOf(sql("1=1")...)), badArgument, "rule-name must be"},
		{"a name that is a number", ruleNode, "add-rule", fields("rule-name", int32(1), "rule-description", mapOf(sql("1=1")...)), badArgument, "rule-name must be"},
		{"no description", ruleNode, "add-rule", fields("rule-name", "r"), badArgument, "rule-description must be a map"},
		{"a description that is a text", ruleNode, "add-rule", fields("rule-name", "r", "rule-description", "1=1"), badArgument, "rule-description must be a map"},
		{"no filter", ruleNode, "add-rule", func(*scene) any { return ruleMap("r") }, badArgument, "neither a sql-filter nor"},
		{"two filters", ruleNode, "add-rule", func(*scene) any {
			return ruleMap("r", append(sql("1=1"), "correlation-filter", mapOf("label", "x"))...)
		}, badArgument, "both a sql-filter and"},
		{"a filter that is a text", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", "sql-filter", "1=1") }, badArgument, "sql-filter is no map"},
		{"a filter without an expression", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", "sql-filter", mapOf()) }, badArgument, "has no expression"},
		{"an expression that is a number", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", sql(int32(1))...) }, badArgument, "has no expression"},
		{"a syntax error", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", sql("a >")...) }, badArgument, "syntax error at character"},
		{"an expression of 1,025 characters", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", sql(strings.Repeat("a", 1025))...) }, exhausted, "longer than 1024 characters"}, // S-229
		{"an action with a syntax error", ruleNode, "add-rule", func(*scene) any {
			return ruleMap("r", append(sql("1=1"), "sql-rule-action", mapOf("expression", "SET"))...)
		}, badArgument, "syntax error at character"},
		{"an action that is a list", ruleNode, "add-rule", func(*scene) any {
			return ruleMap("r", append(sql("1=1"), "sql-rule-action", amqp.List{})...)
		}, badArgument, "sql-rule-action is no map"},
		{"a correlation of nothing", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", "correlation-filter", mapOf()) }, badArgument, "at least one property"},
		{"a correlation with a number for a label", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", "correlation-filter", mapOf("label", int32(1))) }, badArgument, "label of the correlation-filter is no string"},
		{"a correlation with properties that are a list", ruleNode, "add-rule", func(*scene) any { return ruleMap("r", "correlation-filter", mapOf("properties", amqp.List{})) }, badArgument, "properties is no map"},
		{"a correlation with a property that is a list", ruleNode, "add-rule", func(*scene) any {
			return ruleMap("r", "correlation-filter", mapOf("properties", mapOf("p", amqp.List{})))
		}, badArgument, "cannot be compared"},
		{"a rule that exists", ruleNode, "add-rule", func(*scene) any { return ruleMap("$DEFAULT", sql("1=1")...) }, "409 com.microsoft:entity-already-exists", "The messaging entity 'localhost:Topic:news|all|$DEFAULT' already exists."}, // E8
		{"removal of no name", ruleNode, "remove-rule", fields(), badArgument, "rule-name must be"},
		{"removal of a missing rule", ruleNode, "remove-rule", fields("rule-name", "r"), "404 amqp:not-found", "/Rules/r' could not be found"},
		{"a page of nothing", ruleNode, "enumerate-rules", fields("top", int32(0)), badArgument, "top positive"},
		{"a page from minus one", ruleNode, "enumerate-rules", fields("skip", int32(-1)), badArgument, "skip not negative"},
		{"a rule of a topic", "news", "add-rule", func(*scene) any { return ruleMap("r", sql("1=1")...) }, notAllowed, "Only subscriptions have rules"},
		{"a rule of a queue", "orders", "enumerate-rules", fields(), notAllowed, "Only subscriptions have rules"},
		{"a rule of a DLQ", ruleNode + "/$DeadLetterQueue", "remove-rule", fields("rule-name", "$Default"), notAllowed, "Only subscriptions have rules"},
	}
	inBubble(t, func(b *bubble) {
		s := ruleScene(t, b)
		defer s.c.close()
		for _, row := range rows {
			s.asking = row.name
			code, condition, _, text := s.askFully(row.node, "com.microsoft:"+row.op, row.body(s))
			if got := fmt.Sprintf("%d %s", code, condition); got != row.want || !strings.Contains(text, row.text) ||
				!strings.Contains(text, "TrackingId:") {
				t.Errorf("%s: got %s (%s), want %s %s", row.name, got, text, row.want, row.text)
			}
			if all := s.rules(); len(all) != 1 || all[0][2] != "$Default" {
				t.Fatalf("%s: the rules are %v", row.name, all)
			}
		}
	})
}

// RUL-38: a value of a correlation filter comes back as the AMQP type that it was.
func TestTypesOfRuleValuesAreKept(t *testing.T) {
	decimal := amqp.Decimal128{0x0c, 0x3c, 15: 0x7d} // 1.25 as the .NET clients write it
	values := []any{int8(-5), uint8(200), int16(-300), uint16(60000), int32(-5), uint32(4_000_000_000), int64(5), int64(1 << 40),
		uint64(7), uint64(1 << 63), float32(1.1), 1.1, math.Inf(1), amqp.Char('x'), "text", true, nil, []byte("ab"),
		[]byte(strings.Repeat("x", 300)), amqp.UUID{7}, amqp.Timestamp(5000), decimal, amqp.Decimal64{0x31, 0xc0, 7: 5},
		amqp.Decimal32{0x32, 3: 7}, amqp.Described{Descriptor: rulemap.SymbolTimeSpan, Value: int64(math.MinInt64)}}
	inBubble(t, func(b *bubble) {
		s := ruleScene(t, b)
		defer s.c.close()
		props := amqp.Map{}
		for i, v := range values {
			props = append(props, amqp.Pair{Key: fmt.Sprintf("p%02d", i), Value: v})
		}
		if code, _, text := s.ask(ruleNode, "add-rule", ruleMap("typed", "correlation-filter", mapOf("properties", props))); code != codeOK {
			t.Fatalf("add: %d %s", code, text)
		}
		for _, rule := range s.rules() {
			if rule[2] != "typed" {
				continue
			}
			list := rule[0].(amqp.Described).Value.(amqp.List)
			got := list[len(list)-1].(amqp.Map)
			for i, want := range values {
				if v, ok := got.Get(fmt.Sprintf("p%02d", i)); !ok && want != nil || !reflect.DeepEqual(v, want) {
					t.Errorf("%T %v came back as %T %v", want, want, v, v)
				}
			}
			return
		}
		t.Error("the rule is not listed")
	})
}

// RUL-38, S-218: a decimal and bytes of a rule that came over AMQP select the messages that have them, whichever
// encoding either has.
func TestARuleOverAMQPComparesDecimalsAndBytes(t *testing.T) {
	dotnet, ieee := amqp.Decimal128{0x0c, 0x3c, 15: 0x7d}, amqp.Decimal128{0x30, 0x3c, 15: 0x7d} // 1.25 both
	long := amqp.Raw(append([]byte{0xb0, 0, 0, 0, 2}, "ab"...))                                  // vbin32
	sent := []any{dotnet, ieee, 1.25, []byte("ab"), long, "ab", int32(1)}
	for name, c := range map[string]struct {
		wanted any
		copies int // of the messages that are sent
	}{"dotnet": {dotnet, 3}, "ieee": {ieee, 3}, "double": {1.25, 3}, "bytes": {[]byte("ab"), 2}, "text": {"ab", 1}} {
		inBubble(t, func(b *bubble) {
			s := ruleScene(t, b)
			defer s.c.close()
			s.want(codeOK, ruleNode, "add-rule", ruleMap("r", "correlation-filter", mapOf("properties", mapOf("p", c.wanted))))
			s.want(codeOK, ruleNode, "remove-rule", mapOf("rule-name", "$Default"))
			s.c.attach(0, senderTo(90, "news"))
			expect[*amqp.Flow](s.c)
			for i, v := range sent {
				m, err := amqp.AppendValue(nil, amqp.Described{Descriptor: uint64(amqp.CodeApplicationProperties), Value: mapOf("p", v)})
				if err != nil {
					t.Fatal(err)
				}
				s.c.send(0, transferOf(90, uint32(i)), amqp.AppendData(m, []byte("x")))
				answer, _ := expect[*amqp.Disposition](s.c)
				if answer.State != (amqp.Accepted{}) {
					t.Fatalf("%s: %T is answered %v", name, v, answer.State)
				}
			}
			answer := s.want(codeOK, ruleNode, "peek-message", mapOf("from-sequence-number", int64(0), "message-count", int32(50)))
			all, _ := answer.Get("messages")
			if got := len(all.(amqp.List)); got != c.copies {
				t.Errorf("%s selects %d messages, want %d", name, got, c.copies)
			}
		})
	}
}
