package raftnet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// A beat that says the same as the one before renews all places of it through one pulse. A place that is missing in a later
// beat stays as old as it is.
func TestAPulseRenewsThePlacesOfABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := Standing{Leads: true, Leader: "n1", Term: 5, Last: 9, Commit: 9}
		tr, _ := standingTransport(&at)
		voters := []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}
		began := time.Now()
		pulse := NewPulse(began, began)
		tr.HearFollower("n2", Place{3, 5, 9}, pulse)
		time.Sleep(2 * testBeat)
		if tr.Rests("n2", 5, 9) {
			t.Error("a follower rests that was not heard for two beats")
		}
		pulse.Renew(time.Now(), began.Add(testBeat))
		if !tr.Rests("n2", 5, 9) || tr.Rests("n2", 5, 8) || tr.Rests("n2", 4, 9) || tr.Rests("n3", 5, 9) {
			t.Error("the pulse renewed something else than the place")
		}
		if led := tr.LedAt(5, voters, time.Now()); !led.Equal(began.Add(testBeat)) {
			t.Errorf("it led %v after the beginning, want %v", led.Sub(began), testBeat)
		}
		pulse.Renew(time.Now(), time.Time{}) // a beat of which it is not known since when it is true
		if led := tr.LedAt(5, voters, time.Now()); !led.Equal(began.Add(testBeat)) {
			t.Errorf("it led %v after the beginning, want %v as before", led.Sub(began), testBeat)
		}
		tr.Miss("n2")
		time.Sleep(2 * testBeat)
		pulse.Renew(time.Now(), time.Now())
		if tr.Rests("n2", 5, 9) {
			t.Error("a later beat renewed a place that it does not have")
		}
		if led := tr.LedAt(5, voters, time.Now()); !led.Equal(began.Add(testBeat)) {
			t.Errorf("it led %v after the beginning, want %v: what was said once stays true", led.Sub(began), testBeat)
		}
		if led := tr.LedAt(6, voters, time.Now()); !led.IsZero() {
			t.Errorf("it led in another term, %v after the beginning", led.Sub(began))
		}
	})
}

// S-305: a follower has everything as of the time for which its leader's beats are known to be true, if it has applied all
// that they name.
func TestAFollowerIsAsCurrentAsItsLeadersBeats(t *testing.T) {
	began := time.Unix(1_000, 0)
	for name, c := range map[string]struct {
		place   Place
		applied uint64
		since   time.Time
		change  func(*Transport, *Standing)
		want    time.Time
	}{
		"all is applied":           {Place{3, 5, 9}, 9, began, nil, began},
		"more is applied":          {Place{3, 5, 9}, 12, began, nil, began},
		"an entry is missing":      {Place{3, 5, 9}, 8, began, nil, time.Time{}},
		"nobody knows since when":  {Place{3, 5, 9}, 9, time.Time{}, nil, time.Time{}},
		"of another term":          {Place{3, 4, 9}, 9, began, nil, time.Time{}},
		"nothing of the term yet":  {Place{3, 5, 6}, 9, began, nil, time.Time{}},
		"of another leader":        {Place{3, 5, 9}, 9, began, func(_ *Transport, s *Standing) { s.Leader = "n3" }, time.Time{}},
		"it leads now":             {Place{3, 5, 9}, 9, began, func(_ *Transport, s *Standing) { s.Leads = true }, time.Time{}},
		"the node was lost":        {Place{3, 5, 9}, 9, began, func(tr *Transport, _ *Standing) { tr.Forget("n2") }, time.Time{}},
		"a later beat has it not":  {Place{3, 5, 9}, 9, began, func(tr *Transport, _ *Standing) { tr.Miss("n2") }, began},
		"a later beat has another": {Place{3, 5, 9}, 9, began, another, began},
	} {
		at := Standing{Leader: "n2", Term: 5, Last: 9, Commit: 9}
		tr, _ := standingTransport(&at)
		// The leader has an entry of its own term, 7.
		tr.heard.append(&raft.AppendEntriesRequest{Term: 5, PrevLogEntry: 6, PrevLogTerm: 4, LeaderCommitIndex: 6,
			Entries: []*raft.Log{{Index: 7, Term: 5}}}, began.Add(-time.Hour))
		tr.HearLeader("n2", c.place, NewPulse(time.Now(), c.since))
		if c.change != nil {
			c.change(tr, &at)
		}
		if got := tr.CurrentAt(c.applied); !got.Equal(c.want) {
			t.Errorf("%s: current until %v, want %v", name, got, c.want)
		}
	}
}

// another has a node be heard of with one more entry, in a beat of which it is not known since when it is true.
func another(tr *Transport, _ *Standing) {
	tr.Miss("n2")
	tr.HearLeader("n2", Place{3, 5, 10}, NewPulse(time.Now(), time.Time{}))
}

// A group is calm while its leader and all of its followers say the same of it. Whatever may change that ends it at once.
func TestAGroupIsCalmUntilSomethingChanges(t *testing.T) {
	others := []fsm.NodeID{"n2", "n3"}
	for name, c := range map[string]struct {
		leads, follows bool // what the change ends
		change         func(*Transport, *Standing, *Pulse)
	}{
		"nothing happens":             {false, false, func(*Transport, *Standing, *Pulse) {}},
		"beats go on":                 {false, false, func(_ *Transport, _ *Standing, p *Pulse) { time.Sleep(2 * testBeat); p.Renew(time.Now(), time.Now()) }},
		"beats come late":             {true, true, func(*Transport, *Standing, *Pulse) { time.Sleep(2 * testBeat) }},
		"nobody heard the last beats": {true, false, func(_ *Transport, _ *Standing, p *Pulse) { time.Sleep(4 * testBeat); p.Renew(time.Now(), time.Time{}) }},
		"a node says it no more":      {true, true, func(tr *Transport, _ *Standing, _ *Pulse) { tr.Miss("n2") }},
		"a node says something else":  {true, true, func(tr *Transport, _ *Standing, p *Pulse) { tr.HearFollower("n2", Place{3, 5, 8}, p) }},
		"a node was lost":             {true, true, func(tr *Transport, _ *Standing, _ *Pulse) { tr.Forget("n2") }},
		"it gives its leadership up":  {true, true, func(tr *Transport, _ *Standing, _ *Pulse) { tr.Abdicate(5) }},
		"a follower refuses an append": {true, true, func(tr *Transport, _ *Standing, _ *Pulse) {
			tr.acknowledged("n2", emptyAppend(5, 9), false, time.Now())
		}},
		"a follower answers a call": {false, false, func(tr *Transport, _ *Standing, _ *Pulse) { tr.acknowledged("n2", emptyAppend(5, 9), true, time.Now()) }},
	} {
		for _, leads := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				at := Standing{Leads: leads, Leader: "n1", Term: 5, Last: 9, Commit: 9}
				if !leads {
					at.Leader = "n2"
				}
				tr, _ := standingTransport(&at)
				pulse := NewPulse(time.Now(), time.Now())
				for _, n := range others {
					tr.acknowledged(n, emptyAppend(5, 9), true, time.Now())
					if leads {
						tr.HearFollower(n, Place{3, 5, 9}, pulse)
					} else {
						tr.HearLeader(n, Place{3, 5, 9}, pulse)
					}
				}
				calm := tr.Calm(tr.Version(), at, others, time.Now())
				if calm == nil || calm.Followed() != leads {
					t.Fatalf("%s, leads %v: the group is not calm: %+v", name, leads, calm)
				}
				c.change(tr, &at, pulse)
				ends := c.follows
				if leads {
					ends = c.leads
				}
				if _, got := tr.Still(calm, time.Now()); got == ends {
					t.Errorf("%s, leads %v: still calm is %v", name, leads, got)
				}
			})
		}
	}
}

// Which groups are calm at all.
func TestWhichGroupsAreCalm(t *testing.T) {
	others := []fsm.NodeID{"n2", "n3"}
	leads := Standing{Leads: true, Leader: "n1", Term: 5, Last: 9, Commit: 9}
	follows := Standing{Leader: "n2", Term: 5, Last: 9, Commit: 9}
	everybody := func(tr *Transport) {
		for _, n := range others {
			tr.acknowledged(n, emptyAppend(5, 9), true, time.Now())
			tr.HearFollower(n, Place{3, 5, 9}, NewPulse(time.Now(), time.Now()))
			tr.HearLeader(n, Place{3, 5, 9}, NewPulse(time.Now(), time.Now()))
		}
	}
	for name, c := range map[string]struct {
		at   Standing
		said func(*Transport)
		want bool
	}{
		"a leader of whom all rest":            {leads, everybody, true},
		"a follower":                           {follows, everybody, true},
		"an entry that is not committed":       {Standing{Leads: true, Leader: "n1", Term: 5, Last: 10, Commit: 9}, everybody, false},
		"an empty log":                         {Standing{Leads: true, Leader: "n1", Term: 5}, everybody, false},
		"nobody was heard":                     {leads, func(*Transport) {}, false},
		"a follower that has not heard a beat": {follows, func(*Transport) {}, false},
		"one follower was not heard":           {leads, func(tr *Transport) { everybody(tr); tr.Forget("n3") }, false},
		"one follower says it no more":         {leads, func(tr *Transport) { everybody(tr); tr.Miss("n3") }, false},
		"one follower lacks an entry": {leads, func(tr *Transport) {
			everybody(tr)
			tr.HearFollower("n3", Place{3, 5, 8}, NewPulse(time.Now(), time.Now()))
		}, false},
		"nobody knows since when it is so": {leads, func(tr *Transport) {
			everybody(tr)
			tr.HearFollower("n3", Place{3, 5, 9}, NewPulse(time.Now(), time.Time{}))
		}, false},
		"a follower whose leader has more": {follows, func(tr *Transport) {
			everybody(tr)
			tr.HearLeader("n2", Place{3, 5, 10}, NewPulse(time.Now(), time.Now()))
		}, false},
		"a follower whose leader is of a term":  {Standing{Leader: "n2", Term: 6, Last: 9, Commit: 9}, everybody, false},
		"a leader that has given up":            {leads, func(tr *Transport) { everybody(tr); tr.Abdicate(5) }, false},
		"a leader that gave up an earlier term": {leads, func(tr *Transport) { everybody(tr); tr.Abdicate(4) }, true},
	} {
		at := c.at
		tr, _ := standingTransport(&at)
		c.said(tr)
		if got := tr.Calm(tr.Version(), at, others, time.Now()) != nil; got != c.want {
			t.Errorf("%s: calm is %v", name, got)
		}
	}
}

// What a group that is calm says is what it says otherwise.
func TestACalmGroupSaysTheSame(t *testing.T) {
	others := []fsm.NodeID{"n2", "n3"}
	for name, at := range map[string]Standing{
		"leads":   {Leads: true, Leader: "n1", Term: 5, Last: 9, Commit: 9},
		"follows": {Leader: "n2", Term: 5, Last: 9, Commit: 9},
	} {
		tr, _ := standingTransport(&at)
		for _, n := range others {
			tr.acknowledged(n, emptyAppend(5, 9), true, time.Now())
			tr.HearFollower(n, Place{3, 5, 9}, NewPulse(time.Now(), time.Now()))
			tr.HearLeader(n, Place{3, 5, 9}, NewPulse(time.Now(), time.Now()))
		}
		calm := tr.Calm(tr.Version(), at, others, time.Now())
		if calm == nil {
			t.Fatalf("%s: the group is not calm", name)
		}
		said := Beats{{To: "n2"}, {To: "n3"}, {To: "n4"}}
		tr.SayCalm(calm, said)
		for i := range said {
			var want Beat
			if said[i].To != "n4" {
				tr.Say(said[i].To, &want)
			}
			if got := string(AppendBeat(nil, &said[i].Beat)); got != string(AppendBeat(nil, &want)) {
				t.Errorf("%s: to %s %+v, want %+v", name, said[i].To, said[i].Beat, want)
			}
		}
	}
}
