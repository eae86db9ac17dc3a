package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// The slowest of the last two minutes counts, and a handful of writes says nothing.
func TestPaceTellsTheWorstMean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		want := func(what string, mean time.Duration) {
			t.Helper()
			if got := p.Worst(); got != mean {
				t.Errorf("%s: %v, want %v", what, got, mean)
			}
		}
		write := func(n int, took time.Duration) {
			for range n {
				p.note(took)
			}
		}
		want("nothing was written", 0)
		write(paceWrites-1, time.Second)
		want("too few writes", 0)
		time.Sleep(paceSpan)
		write(10, 0)
		want("writes that took no time", 1)
		time.Sleep(paceSpan)
		write(10, 100*time.Millisecond)
		write(10, 300*time.Millisecond)
		want("a slow span", 200*time.Millisecond)
		for range paceSpans - 1 {
			time.Sleep(paceSpan)
			write(100, time.Millisecond)
			want("fast ones behind it", 200*time.Millisecond)
		}
		time.Sleep(paceSpan)
		want("two minutes later", time.Millisecond)
		time.Sleep(time.Hour)
		want("much later", 0)
	})
	var none *Pace
	none.note(time.Second) // nobody asks
}

// The table of versions has the form that is written here.
func TestTheTableHasTheForm(t *testing.T) {
	if known := fsm.NewestFormat("replica preamble"); known != snapshotVersion {
		t.Errorf("form %d is written, fsm/versions.go has %d", snapshotVersion, known)
	}
}

func TestFromWhenADiskIsSlow(t *testing.T) {
	for name, c := range map[string]struct {
		means []time.Duration
		from  time.Duration
	}{
		"nobody tells":       {nil, 100},
		"all are quick":      {[]time.Duration{3, 5, 90}, 100},
		"all are slow":       {[]time.Duration{300, 200, 400}, 1200},
		"of two the quicker": {[]time.Duration{300, 50}, 200},
	} {
		for i := range c.means {
			c.means[i] *= time.Millisecond
		}
		if from := SlowFrom(c.means); from != c.from*time.Millisecond {
			t.Errorf("%s: %s", name, from)
		}
	}
}
