package scenario

import (
	"slices"
	"testing"
)

// size is how many of something a scenario has: full, as section 9 of semantics.md says it, or short
// in tests that run with -short. The arguments are literals, because scripts/coverage reads them from
// here and writes the table in docs/testing.md.
func size(_, _ string, full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// exactly checks that every one of the texts is in the list once, in any order, and nothing else.
func exactly(b *bench, what string, got, want []string) {
	b.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
	}
	seen, wanted := map[string]int{}, map[string]int{}
	for _, t := range got {
		seen[t]++
	}
	for _, t := range want {
		wanted[t]++
	}
	for t, n := range wanted {
		if seen[t] != n {
			b.Errorf("%s: %q is there %d times, want %d", what, t, seen[t], n)
		}
	}
	for t, n := range seen {
		if wanted[t] == 0 {
			b.Errorf("%s: %q is there %d times, want none", what, t, n)
		}
	}
	b.Fatalf("%s: got %d, want %d", what, len(got), len(want))
}

// TestExactlySeesALossBesideADouble: as many as there should be is not what there should be.
func TestExactlySeesALossBesideADouble(t *testing.T) {
	for name, tc := range map[string]struct {
		got  []string
		fine bool
	}{
		"another order":            {[]string{"c", "a", "b"}, true},
		"one lost and one doubled": {[]string{"a", "b", "b"}, false},
		"one lost":                 {[]string{"a", "b"}, false},
		"one strange":              {[]string{"a", "b", "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan *testing.T)
			go func() { // its own goroutine, which Fatalf ends
				inner := &testing.T{}
				defer func() { done <- inner }()
				exactly(&bench{T: inner}, "list", tc.got, []string{"a", "b", "c"})
			}()
			if inner := <-done; inner.Failed() == tc.fine {
				t.Errorf("failed: %t", inner.Failed())
			}
		})
	}
}
