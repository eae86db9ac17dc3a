package ledger

import (
	"strings"
	"testing"
)

// TestCopyCatches proves that each check of a restored backup can fail. The backup lasts from 100 to 200.
func TestCopyCatches(t *testing.T) {
	a := Name{"q", "a"}
	there := []Found{{Name: a, Number: 7, Content: 9}}
	for _, c := range []struct {
		name  string
		life  Life
		found []Found
		want  string
	}{
		{"it was there before, and is there", Life{Begun: 1, Kept: 2, Number: 7, Content: 9}, there, ""},
		{"it is lost", Life{Begun: 1, Kept: 100}, nil, "acknowledged before the backup, and is missing"},
		{"it may be missing: it was acknowledged meanwhile", Life{Begun: 1, Kept: 101}, nil, ""},
		{"it may be missing: its send ended unknown", Life{Begun: 1}, nil, ""},
		{"it may be missing: its removal was asked for meanwhile", Life{Begun: 1, Kept: 2, Leaving: 200}, nil, ""},
		{"it is lost: its removal was asked for later", Life{Begun: 1, Kept: 2, Leaving: 201, Gone: 202}, nil, "is missing"},
		{"it may be there: its removal was not answered", Life{Begun: 1, Kept: 2, Leaving: 3}, there, ""},
		{"it came back", Life{Begun: 1, Kept: 2, Leaving: 3, Gone: 100}, there, "removed before the backup"},
		{"it is doubled", Life{Begun: 1, Kept: 2}, append(there, there...), "there 2 times"},
		{"it is of later", Life{Begun: 201}, there, "sent after the backup"},
		{"another number", Life{Begun: 1, Number: 8}, there, "number 7, and had 8"},
		{"another content", Life{Begun: 1, Content: 8}, there, "another content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(JudgeCopy(100, 200, map[Name]Life{a: c.life}, c.found), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	b := Name{"q", "b"}
	both := []Found{{Name: a, Number: 7, Content: 9}, {Name: b, Number: 6, Content: 9}}
	for _, c := range []struct {
		name string
		a, b Life
		want bool
	}{
		{"sent one after the other", Life{Begun: 1, Kept: 2}, Life{Begun: 3, Kept: 4}, true},
		{"sent at once", Life{Begun: 1, Kept: 3}, Life{Begun: 3, Kept: 4}, false},
		{"the end of the first send is not known", Life{Begun: 1}, Life{Begun: 3, Kept: 4}, false},
		{"the first was scheduled", Life{Begun: 1, Kept: 2, Timed: true}, Life{Begun: 3, Kept: 4}, false},
	} {
		got := strings.Join(JudgeCopy(100, 200, map[Name]Life{a: c.a, b: c.b}, both), "; ")
		if strings.Contains(got, "whose send had ended before") != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	later := []Found{{Name: b, Number: 6, Content: 9}}
	for _, c := range []struct {
		name  string
		life  Life
		found []Found
		want  bool
	}{
		{"it was acknowledged meanwhile, and a later one is there", Life{Begun: 101, Kept: 102}, later, true},
		{"it was removed meanwhile", Life{Begun: 101, Kept: 102, Leaving: 150}, later, false},
		{"it was sent at the same time", Life{Begun: 101, Kept: 103}, later, false},
		{"it may be in another share", Life{Begun: 101, Kept: 102}, []Found{{Name: b, Number: 5<<48 + 1}}, false},
	} {
		got := strings.Join(JudgeCopy(100, 200, map[Name]Life{a: c.life, b: {Begun: 103, Kept: 104}}, c.found), "; ")
		if strings.Contains(got, "which was sent later") != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if got := JudgeCopy(100, 200, nil, there); len(got) != 1 || !strings.Contains(got[0], "nobody sent it") {
		t.Errorf("a message from nowhere: %q", got)
	}
}
