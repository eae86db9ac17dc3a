package rule

import (
	"testing"
)

// message is a message as the state machine would show it.
type message struct {
	user   []Property
	system map[SystemProperty]Value
	drawn  byte
}

func (m *message) User(name string) (Value, bool) {
	for i := range m.user {
		if SameName(m.user[i].Name, name) {
			return m.user[i].Value, true
		}
	}
	return Value{}, false
}

func (m *message) System(p SystemProperty) Value { return m.system[p] }

func (m *message) Properties() int { return len(m.user) }

func (m *message) NewID() (id [16]byte) {
	m.drawn++
	for i := range id {
		id[i] = m.drawn
	}
	return id
}

// sample is the message of most tests. Of the user properties, Quantity is 7, color red.
func sample() *message {
	return &message{
		user: []Property{
			{Name: "Quantity", Value: OfInt(7)},
			{Name: "price", Value: OfFloat(2.5)},
			{Name: "color", Value: OfString("red")},
			{Name: "digits", Value: OfString("5")},
			{Name: "percent", Value: OfString("100%")},
			{Name: "yes", Value: OfBool(true)},
			{Name: "no", Value: OfBool(false)},
			{Name: "nothing", Value: Value{}},
			{Name: "guid", Value: OfGuid([16]byte{1, 2, 3})},
			{Name: "huge", Value: OfUint(1<<64 - 1)},
			{Name: "decimal", Value: OfDecimal("\x01\x02")},
			{Name: "blob", Value: OfBinary("xyz")},
			{Name: "due", Value: OfTimestamp(1_000_000)},
			{Name: "made", Value: OfTimestamp(400_000)},
			{Name: "two words", Value: OfInt(2)},
			{Name: "a]b\"c", Value: OfInt(3)},
			{Name: "sys", Value: OfInt(4)},
			{Name: "p", Value: OfString("color")},
			{Name: "größe", Value: OfInt(44)},
			{Name: "set", Value: OfInt(5)},
			{Name: "min", Value: OfInt(-1 << 63)},
		},
		system: map[SystemProperty]Value{
			Label:          OfString("order"),
			MessageID:      OfString("m-1"),
			EnqueuedTime:   OfTimestamp(500_000),
			ExpiresAt:      OfTimestamp(600_000),
			SequenceNumber: OfInt(42),
			TimeToLive:     OfMillis(100_000),
		},
	}
}

// answer is what a filter says about a message.
type answer uint8

const (
	isFalse answer = iota
	isTrue
	unknown
	fails
)

var answerNames = [...]string{"false", "true", "unknown", "an error"}

// ask evaluates a predicate to one of the four answers: unknown is what neither it nor its negation
// selects.
func ask(t *testing.T, m Message, predicate string, parameters ...Property) answer {
	t.Helper()
	match := func(text string) (bool, error) {
		f, err := Parse(text, parameters)
		if err != nil {
			t.Fatalf("Parse(%q): %v", text, err)
		}
		return f.Match(m)
	}
	yes, err := match(predicate)
	if err != nil {
		return fails
	}
	no, err := match("NOT (" + predicate + ")")
	switch {
	case err != nil:
		t.Fatalf("%q evaluates, but its negation fails: %v", predicate, err)
	case yes && no:
		t.Fatalf("%q and its negation both select", predicate)
	case yes:
		return isTrue
	case no:
		return isFalse
	}
	return unknown
}

type question struct {
	predicate string
	want      answer
}

func askAll(t *testing.T, questions []question, parameters ...Property) {
	t.Helper()
	m := sample()
	for _, q := range questions {
		if got := ask(t, m, q.predicate, parameters...); got != q.want {
			t.Errorf("%s: got %s, want %s", q.predicate, answerNames[got], answerNames[q.want])
		}
	}
}
