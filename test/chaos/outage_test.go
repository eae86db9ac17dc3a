package main

import (
	"testing"
	"time"
)

func TestLongestGapOfAClient(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	ok := func(from, to int) attempt { return attempt{Begin: at(from), End: at(to)} }
	failed := func(from, to int) attempt { return attempt{at(from), at(to), "no"} }
	for _, c := range []struct {
		name     string
		attempts []attempt
		want     int // ms, of a span from 100 to 500
	}{
		{"an even flow has the gap of its pace", []attempt{ok(80, 90), ok(180, 190), ok(280, 290),
			ok(380, 390), ok(480, 490), ok(580, 590)}, 100},
		{"a gap that began before the span counts whole", []attempt{ok(0, 10), ok(50, 350), ok(360, 510)}, 340},
		{"a gap that ends after the span counts whole", []attempt{ok(90, 100), ok(110, 150), ok(160, 900)}, 750},
		{"a failed attempt is no service", []attempt{ok(90, 95), failed(100, 200), ok(210, 395), ok(400, 505)}, 300},
		{"gaps outside the span do not count", []attempt{ok(0, 1), ok(2, 95), ok(96, 300), ok(301, 500), ok(501, 999)}, 205},
		{"a client that had nothing more waited until the end", []attempt{ok(90, 120)}, 380},
		{"a client that never had anything waited for the whole span", []attempt{failed(90, 700)}, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &prober{attempts: c.attempts}
			got := p.longest(at(100), at(500)).took
			if want := time.Duration(c.want) * time.Millisecond; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestWhatIsUnderWayAtTheFaultDoesNotCountBeforeIt(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	p := &prober{attempts: []attempt{{Begin: at(0), End: at(10)}, {Begin: at(20), End: at(80)},
		{Begin: at(90), End: at(900)}}}
	if got := p.until(at(100)).longest(at(0), at(100)).took; got != 70*time.Millisecond {
		t.Errorf("got %s, want 70ms", got)
	}
	if got := p.longest(at(100), at(1000)).took; got != 820*time.Millisecond {
		t.Errorf("the whole has %s, want 820ms", got)
	}
}

func TestKindsOfOutages(t *testing.T) {
	all, err := parseKinds("")
	if err != nil || len(all) != len(outageKinds) {
		t.Errorf("without names: %v, %v; want all of %d", all, err, len(outageKinds))
	}
	for _, name := range all {
		if find(outageKinds[name].nemesis) == nil {
			t.Errorf("%s is made by %q, which there is not", name, outageKinds[name].nemesis)
		}
	}
	if got, err := parseKinds("kill, stall"); err != nil || len(got) != 2 || got[1] != "stall" {
		t.Errorf("two names: %v, %v", got, err)
	}
	if _, err := parseKinds("kil"); err == nil {
		t.Error("a name that is none was taken")
	}
}
