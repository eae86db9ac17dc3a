package fsm

import "testing"

// lateList has messages of one byte more each.
type lateList struct{ messages []Message }

func (l *lateList) Len() int { return len(l.messages) }

func (l *lateList) OnMore(func()) {}

func (l *lateList) Take(room int) (out []Message) {
	for _, m := range l.messages {
		if room -= len(m.Body); room < 0 {
			break
		}
		out = append(out, m)
	}
	return out
}

// A command that is sealed is the same each time that it is asked.
func TestASealedEnqueueDoesNotGrow(t *testing.T) {
	late := &lateList{}
	c := &Enqueue{Messages: []Message{{Body: []byte("a")}}, Late: late}
	late.messages = []Message{{Body: []byte("bb")}, {Body: []byte("ccc")}, {Body: []byte("dddd")}}
	if c.Len() != 4 {
		t.Errorf("%d messages, want 4", c.Len())
	}
	c.Seal(5)
	late.messages = append(late.messages, Message{Body: []byte("e")})
	c.Seal(100)
	got := ""
	for _, m := range c.Messages {
		got += string(m.Body)
	}
	if got != "abbccc" || c.Len() != 3 {
		t.Errorf("%d messages %q, want 3 of abbccc", c.Len(), got)
	}
}
