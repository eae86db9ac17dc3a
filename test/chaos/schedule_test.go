package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/check"
)

func TestMandatoryFaultsExist(t *testing.T) {
	for _, c := range mandatory() {
		for _, name := range c {
			if find(name) == nil {
				t.Errorf("no fault is called %q", name)
			}
		}
	}
}

func TestFaultsAreChosenByTheirNames(t *testing.T) {
	got, err := namesOf("kill, power loss")
	if err != nil || len(got) != 2 || !got["kill"] || !got["power loss"] {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := namesOf(""); err != nil || got != nil {
		t.Errorf("all: %v, %v", got, err)
	}
	if _, err := namesOf("kill,disk full"); err == nil || !strings.Contains(err.Error(), `"disk full"`) {
		t.Errorf("a name that there is not: %v", err)
	}
}

func TestWhatDoesNotCount(t *testing.T) {
	bit := &strike{nemesis: &nemesis{name: "kill"}}
	missed := &strike{nemesis: &nemesis{name: "kill"}, bit: errors.New("it still runs")}
	never := &strike{nemesis: &nemesis{name: "move leaders"}, bit: errors.New("401 Unauthorized")}
	cases := []struct {
		name       string
		strikes    []*strike
		operations int
		takeOvers  int64
		want       string
	}{
		{"a run whose faults bit counts", []*strike{bit, bit}, 1000, 2, ""},
		{"no fault", nil, 1000, 2, "no fault"},
		{"a fault that did not bite", []*strike{bit, missed}, 1000, 2, "1 of 2"},
		{"a kind that never bit, among others that did", []*strike{bit, bit, bit, bit, bit, bit, bit, bit, bit, bit, bit, bit, never,
			never, never}, 1000, 2, `"move leaders" never bit, of 3 times`},
		{"clients that did nothing", []*strike{bit}, 3, 2, "only 3 operations"},
		{"sessions that were taken over once in a minute", []*strike{bit}, 1000, 1, "too few take-overs, want 2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := &outcome{took: time.Minute, operations: c.operations, schedule: &schedule{strikes: c.strikes}, world: &world{}}
			o.world.shared.takeOvers.Store(c.takeOvers)
			o.world.shared.settled.Store(2)
			o.world.shared.refused.Store(2)
			got := ""
			if err := o.counts(); err != nil {
				got = err.Error()
			}
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLeaksAreTold(t *testing.T) {
	b := newBudget(true)
	b.first["n1"] = usage{goroutines: 400, files: 100, heap: 50 << 20, disk: 300 << 20}
	b.last["n1"] = b.first["n1"]
	if got := b.over(); len(got) != 0 {
		t.Errorf("nothing rose, told %q", got)
	}
	b.last["n1"] = usage{goroutines: 900, files: 400, heap: 900 << 20, disk: 9 << 30}
	if got := b.over(); len(got) != 4 {
		t.Errorf("everything rose, told %q", got)
	}
}

func TestAnEndThatNobodyExpectedIsAFinding(t *testing.T) {
	dir := t.TempDir()
	n := newNode(supervised(t), 1, "127.0.0.1", filepath.Join(dir, "d"), filepath.Join(dir, "n1.log"))
	n.Command([]string{"sh"}, "-c", "until [ -e \"$0\" ]; do sleep 0.01; done; echo 'panic: not so'; exit 3",
		filepath.Join(dir, "end"))
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	// It ends only now: the supervisor takes over nobody who has ended.
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	got := strings.Join(n.findings(), "\n")
	for _, want := range []string{"ended by itself: exit status 3", "panic: not so"} {
		if !strings.Contains(got, want) {
			t.Errorf("findings are %q, want %q among them", got, want)
		}
	}
}

func TestDamageIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 10_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		d, err := damageOne(dir, testRand(t))
		if err != nil {
			t.Fatal(err)
		}
		if now, _ := os.ReadFile(file); string(now) == string(d.before) {
			t.Errorf("%s changed nothing", d.kind)
		}
		if !d.untouched() {
			t.Errorf("%s: the damage is not what it was", d.kind)
		}
		if err := d.write(d.before); err != nil {
			t.Fatal(err)
		}
	}
}

// TestALossIsCaught gives the judge a history in which an acknowledged message is nowhere.
func TestALossIsCaught(t *testing.T) {
	r := check.NewRecorder(epsilon, epsilon, queues()...)
	o := r.Begin(1, 1, check.Send, "plain", check.InMain)
	r.Set(o, func(o *check.Op) { o.Message = check.Message{ID: "m1"} })
	r.End(o, check.OK, nil)
	r.Finish(nil)
	if got := check.CheckAll(r.History()); len(got) != 1 || got[0].Invariant != "I1" {
		t.Errorf("got %v, want one loss", got)
	}
}
