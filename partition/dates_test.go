package partition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
)

// S-289: more than five seconds from the median of at least three is wrong; of an even number the median
// is the middle of the two in the middle.
func TestJudgeClock(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name string
		all  []time.Duration // relative to this node, which is 0
		was  bool
		want ClockStatus
	}{
		{"all alike", []time.Duration{0, 0, 0}, false, ClockStatus{true, 0, false}},
		{"an hour ahead of two", []time.Duration{0, -3600 * s, -3600 * s}, false, ClockStatus{true, 3600 * s, true}},
		{"an hour behind two", []time.Duration{0, 3600 * s, 3600 * s}, false, ClockStatus{true, -3600 * s, true}},
		{"another one is wrong", []time.Duration{0, 0, 3600 * s}, false, ClockStatus{true, 0, false}},
		{"five seconds are right", []time.Duration{0, 5 * s, 5 * s}, false, ClockStatus{true, -5 * s, false}},
		{"a moment more is wrong", []time.Duration{0, 5*s + 1, 5*s + 1}, false, ClockStatus{true, -5*s - 1, true}},
		{"it must get well below to be right again", []time.Duration{0, 4*s + 1, 5 * s}, true,
			ClockStatus{true, -4*s - 1, true}},
		{"right again", []time.Duration{0, 4 * s, 5 * s}, true, ClockStatus{true, -4 * s, false}},
		{"one of four", []time.Duration{0, 10 * s, 10 * s, 10 * s}, false, ClockStatus{true, -10 * s, true}},
		{"two against two are as far from the middle", []time.Duration{0, 0, 20 * s, 20 * s}, false,
			ClockStatus{true, -10 * s, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := judgeClock(slices.Clone(tc.all), tc.was); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// dates are the wrong dates of the nodes of a test.
type dates struct {
	mu    sync.Mutex
	ahead map[fsm.NodeID]time.Duration
}

func (d *dates) set(n fsm.NodeID, ahead time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead[n] = ahead
}

// wrongClocks is a cluster whose nodes' dates can be set.
func wrongClocks(t *testing.T, n int, f func(t *testing.T, c *testCluster, d *dates)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		c, d := newTestCluster(t, n), &dates{ahead: map[fsm.NodeID]time.Duration{}}
		c.cfg = func(cfg *Config) {
			id := cfg.Node
			cfg.Clock = func() (wall, passing time.Time) {
				d.mu.Lock()
				defer d.mu.Unlock()
				return time.Now().Add(d.ahead[id]), time.Now()
			}
		}
		c.open(1)
		defer c.close()
		f(t, c, d)
	})
}

// S-289, T-246: a node that finds its date wrong says so, gives its leadership away, and does not take
// one while another can; of two clocks nobody knows which is wrong.
func TestNodeWithAWrongClockLeavesLeadingToOthers(t *testing.T) {
	wrongClocks(t, 3, func(t *testing.T, c *testCluster, d *dates) {
		old := c.leader(1)
		wrong := old.Node()
		h := c.nodes[wrong].host
		time.Sleep(2 * clockEvery)
		if s := h.Clock(); !s.Judged || s.Wrong || s.Ahead != 0 {
			t.Fatalf("with the right date: %+v", s)
		}
		d.set(wrong, time.Hour)
		time.Sleep(2 * clockEvery)
		if s := h.Clock(); !s.Wrong || s.Ahead != time.Hour {
			t.Fatalf("an hour ahead: %+v", s)
		}
		for _, id := range c.others(wrong) {
			if s := c.nodes[id].host.Clock(); s.Wrong {
				t.Errorf("%s, which is right: %+v", id, s)
			}
		}
		if all, err := askStatus(t.Context(), c.nodes[wrong].port, wrong); err != nil || !all[0].WrongClock {
			t.Errorf("the others are told %+v, %v", all, err)
		}
		balanceOnce(t, h)
		next := c.leader(1)
		if next.Node() == wrong {
			t.Fatal("it leads on")
		}
		// The leader goes, and raft's time-outs decide: ten times, so that chance would have it lead.
		for i := range 10 {
			gone := c.leader(1).Node()
			c.net.Isolate(gone, true)
			if got := c.leader(1, gone).Node(); got == wrong {
				t.Fatalf("time %d: the one with the wrong date leads", i)
			}
			c.net.Isolate(gone, false)
			time.Sleep(10 * time.Second)
		}
		d.set(wrong, 0)
		time.Sleep(2 * clockEvery)
		if s := h.Clock(); s.Wrong || s.Ahead != 0 {
			t.Errorf("the date is set right: %+v", s)
		}
	})
	wrongClocks(t, 2, func(t *testing.T, c *testCluster, d *dates) {
		c.leader(1)
		d.set("n1", time.Hour)
		time.Sleep(2 * clockEvery)
		for _, id := range c.ids {
			if s := c.nodes[id].host.Clock(); s.Judged || s.Wrong {
				t.Errorf("%s of two: %+v", id, s)
			}
		}
	})
}

// S-289: a wrong date does not keep a group without a leader: who alone has all that was acknowledged
// leads, and so does who waited for the others in vain.
func TestWrongClockLeadsWhenNobodyElseCan(t *testing.T) {
	wrongClocks(t, 3, func(t *testing.T, c *testCluster, d *dates) {
		old := c.leader(1)
		wrong, behind := c.others(old.Node())[0], c.others(old.Node())[1]
		d.set(wrong, -time.Hour)
		time.Sleep(2 * clockEvery)
		if s := c.nodes[wrong].host.Clock(); !s.Wrong || s.Ahead != -time.Hour {
			t.Fatalf("an hour behind: %+v", s)
		}
		c.net.Isolate(behind, true)
		if _, err := old.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		c.crash(old.Node())
		c.net.Isolate(behind, false)
		if got := c.leader(1, old.Node()).Node(); got != wrong {
			t.Errorf("%s leads without the last message", got)
		}
		// The verdict stays although there are too few clocks now to come to one.
		time.Sleep(2 * clockKeep)
		h := c.nodes[wrong].host
		if !h.Clock().Wrong {
			t.Error("the date is called right because others went away")
		}
		r := h.Replica(1)
		c.settled(old.Node())
		if !h.defers(t.Context(), r) {
			t.Error("an election is not left to a node that could win it")
		}
		time.Sleep(deferFor*h.cfg.HeartbeatTimeout + time.Millisecond)
		if h.defers(t.Context(), r) {
			t.Error("elections are left to a node that does not win them")
		}
	})
}

// balanceOnce has a node give leaderships away, as its supervisor does.
func balanceOnce(t *testing.T, h *Host) {
	t.Helper()
	cfg := control.Defaults()
	cfg.Place = placeRound
	s, err := newSupervisor(h, NewDirectory(h), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, l := range s.Loops() {
		if l.Name == "balance" {
			l.Step(t.Context(), control.Facts{View: catalog.New().View(), Replicas: h.list()})
		}
	}
}

// What a peer says of its date is not trusted further than it goes.
func TestClocksOfStrangersAndLiars(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		c.leader(1)
		h := c.nodes["n1"].host
		if _, err := h.serveClock(t.Context(), "n2", []byte{1}); !errors.Is(err, fsm.ErrFormat) {
			t.Errorf("a question with a text: %v", err)
		}
		var answer []byte
		liar := c.net.Port("liar")
		liar.Handle(KindClock, func(context.Context, fsm.NodeID, []byte) ([]byte, error) { return answer, nil })
		c.net.Attach(liar)
		for _, tc := range []struct {
			name   string
			answer []byte
			heard  bool
		}{
			{"nothing", nil, false},
			{"short", []byte{1, 2, 3}, false},
			{"before time", []byte{0xff, 0, 0, 0, 0, 0, 0, 0}, false},
			{"the end of time", []byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true},
		} {
			answer = tc.answer
			if err := h.dates.ask(t.Context(), "liar"); (err == nil) != tc.heard {
				t.Errorf("%s: %v", tc.name, err)
			}
			time.Sleep(2 * clockEvery)
			if s := h.Clock(); !s.Judged || s.Wrong || s.Ahead != 0 {
				t.Errorf("%s: %+v", tc.name, s)
			}
		}
	})
}
