package replica

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

var _ told = (*raft.Raft)(nil)

// tells says of a log what the test wants, and counts how often it is asked for the text.
type tells struct {
	current, index, term uint64
	asked                int
}

func (t *tells) CurrentTerm() uint64 { return t.current }
func (t *tells) LastIndex() uint64   { return t.index }

func (t *tells) Stats() map[string]string {
	t.asked++
	return map[string]string{"last_log_index": fmt.Sprint(t.index), "last_log_term": fmt.Sprint(t.term)}
}

// Raft is asked for the text while the last entry is of an earlier term, and once for each entry of the term.
func TestTheTermOfTheLastEntryIsRemembered(t *testing.T) {
	var l lastTerm
	r := &tells{}
	for _, step := range []struct {
		what                 string
		current, index, term uint64
		asks                 int
	}{
		{"an empty log", 0, 0, 0, 1},
		{"the first leader is known", 1, 0, 0, 1},
		{"its first entry", 1, 1, 1, 1},
		{"the same again", 1, 1, 1, 0},
		{"another entry", 1, 2, 1, 1},
		{"a term begins", 2, 2, 1, 1},
		{"nothing of it yet", 2, 2, 1, 1},
		{"its leader replaces the entry", 2, 2, 2, 1},
		{"the same again, of that term", 2, 2, 2, 0},
		{"a later entry was cut off", 3, 1, 1, 1},
		{"a shorter log that grows again", 3, 2, 3, 1},
	} {
		r.current, r.index, r.term, r.asked = step.current, step.index, step.term, 0
		if got := l.of(r); got != step.term || r.asked != step.asks {
			t.Errorf("%s: term %d, want %d; asked %d times, want %d", step.what, got, step.term, r.asked, step.asks)
		}
	}
}
