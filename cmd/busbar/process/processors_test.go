package process

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A chooser of eight processors, and what it gives a load of so many cores, look by look.
func TestProcessorsFollowTheLoad(t *testing.T) {
	type stretch struct {
		cores float64
		looks int
		want  int // at the end
	}
	for name, all := range map[string][]stretch{
		"nothing to do":                {{0, calmLooks - 1, 8}, {0, 1, 1}, {0, 100, 1}},
		"a little":                     {{0.3, calmLooks, 1}, {0.6, 100, 1}},
		"more at once":                 {{0, calmLooks, 1}, {0.7, 1, 8}},
		"more at once, and then less":  {{0, calmLooks, 1}, {1.1, 1, 8}, {1.1, 2*calmLooks - 1, 8}, {1.1, 1, 3}, {1.1, 100, 3}},
		"a load between two numbers":   {{1.1, calmLooks, 3}, {1.3, 100, 3}, {1.9, 100, 3}, {2, 1, 8}},
		"the busiest look counts":      {{0.1, 3, 8}, {1.5, 1, 8}, {0.1, calmLooks - 4, 4}},
		"a busy look begins anew":      {{0.1, calmLooks - 1, 8}, {6, 1, 8}, {0.1, calmLooks - 1, 8}, {0.1, 1, 1}},
		"everything that there is":     {{8, 100, 8}},
		"more than there is":           {{9, 100, 8}},
		"a load that goes up and down": {{0.1, calmLooks, 1}, {0.64, 50, 1}, {0.1, 50, 1}, {0.64, 50, 1}},
		"less on one processor":        {{1, calmLooks, 1}, {0.6, 100, 1}},
		"not less on one processor": {{1, calmLooks, 1}, {1, 1, 8}, {1, 2*calmLooks - 1, 8}, {1, 1, 1}, {1, 1, 8}, {1, 4*calmLooks - 1, 8},
			{1, 1, 1}, {1, 1, 8}, {1, 7 * calmLooks, 8}},
		"and soon when it was enough": {{1, calmLooks, 1}, {1, 1, 8}, {1, 2 * calmLooks, 1}, {0.5, 2*calmLooks + 1, 1}, {1, 1, 8},
			{1, calmLooks - 1, 8}, {1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := chooser{most: 8, now: 8}
			for _, s := range all {
				for range s.looks {
					c.look(time.Duration(s.cores*float64(processorsLook)), processorsLook)
				}
				if c.now != s.want {
					t.Errorf("%d processors behind %d looks of %v cores, want %d", c.now, s.looks, s.cores, s.want)
				}
			}
			if now := c.look(time.Hour, 0); now != c.now {
				t.Error("a look without time between counts")
			}
		})
	}
}

// A load that one processor is not enough for costs a look now and then, each time later than before, at last one a minute.
func TestFewerProcessorsAreTriedSeldom(t *testing.T) {
	c, tried := chooser{most: 8, now: 8}, []int(nil)
	for look := range 10 * tryLooks {
		if c.look(processorsLook, processorsLook) == 1 {
			tried = append(tried, look)
		}
	}
	want := calmLooks
	for i, look := range tried {
		before := -1
		if i > 0 {
			before = tried[i-1] + 1
			want = min(2*want, tryLooks)
		}
		if look-before != want {
			t.Errorf("tried at the looks %v; number %d is %d after the last failure, want %d", tried, i, look-before, want)
		}
	}
	if len(tried) < 10 {
		t.Errorf("tried %d times in %d looks", len(tried), 10*tryLooks)
	}
}

// A process of its own falls to one processor while it has nothing to do, and has them all again when it works on all.
func TestAdaptProcessors(t *testing.T) {
	const child = "BUSBAR_TEST_PROCESSORS"
	if os.Getenv(child) == "" {
		if runtime.NumCPU() < 2 {
			t.Skip("one processor is what the machine has")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestAdaptProcessors$", "-test.v")
		for _, v := range os.Environ() {
			if len(v) < 11 || v[:11] != "GOMAXPROCS=" {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	most := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int64
		time.Sleep(time.Millisecond) // each look is between two of the steps below
		end := adaptTo(func() time.Duration { return time.Duration(used.Load()) })
		for _, s := range []struct {
			cores float64
			looks int
			want  int
		}{{0, calmLooks + 1, 1}, {float64(most), 2, most}, {0, 2*calmLooks + 1, 1}} {
			for range s.looks {
				used.Add(int64(s.cores * float64(processorsLook)))
				time.Sleep(processorsLook)
			}
			if now := runtime.GOMAXPROCS(0); now != s.want {
				t.Errorf("%d processors after %d looks at %v cores, want %d", now, s.looks, s.cores, s.want)
			}
		}
		end()
	})
	if now := runtime.GOMAXPROCS(0); now != most {
		t.Errorf("%d processors at the end, want %d", now, most)
	}
}

// The CPU time of the process grows while it works.
func TestCPUTimeGrows(t *testing.T) {
	for before := cpuTime(); cpuTime() < before+10*time.Millisecond; {
		runtime.Gosched()
	}
}
