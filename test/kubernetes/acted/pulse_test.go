package acted

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A pulse tells each lull that is longer than a second, and when it was.
func TestAPulseTellsItsLulls(t *testing.T) {
	now := time.Now()
	p := &pulse{began: now, origin: now.Add(-10 * time.Second)}
	for _, span := range []struct{ tenths, beats int }{{50, 10}, {20, 0}, {50, 10}, {8, 0}, {50, 10}} {
		p.beats = append(p.beats, slices.Repeat([]int{span.beats}, span.tenths)...)
	}
	got := p.String()
	for _, want := range []string{"100 operations a second in the median, 0 in the lowest", "below half for 1.9s at most",
		"for more than a second: [1.9s from 15.1s on]"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q has no %q", got, want)
		}
	}
}
