package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/model"
)

// auditEvery is how many entries lie between two full recounts of the state.
const auditEvery = 200

// replayed is what happened in a committed log, as far as clients can be told of it.
type replayed struct {
	stored  map[string][]event // by message id: what was enqueued
	settled map[string][]event // by token: settlements that worked
}

func newReplayed() *replayed {
	return &replayed{stored: map[string][]event{}, settled: map[string][]event{}}
}

// replayer is the state machine under test: fsm.State, or a broken one in the checkers' own tests.
type replayer interface {
	Apply(index uint64, e *fsm.Entry) fsm.Result
	Clocks() (wall fsm.Wall, lease fsm.Lease)
	Digest() uint64
	CheckInvariants() error
}

// event is one effect in a log.
type event struct {
	p       fsm.PartitionID
	index   uint64
	seq     fsm.SequenceNumber
	verdict fsm.Verdict
}

// Check replays every committed log through the state machine and through the independent model. It holds the results
// against what the clients were told.
func (w *Witness) Check(h *History) []Violation {
	r := report{name: "I24"}
	all := newReplayed()
	var out []Violation
	for _, l := range w.Logs() {
		for _, text := range l.wrong {
			r.add(nil, "%s", text)
		}
		if l.Partition != fsm.CatalogPartition {
			out = append(out, l.replay(all, fsm.New(l.Partition))...)
		}
	}
	out = append(out, r.list...)
	if h != nil {
		v := newView(h)
		out = append(out, all.mapped(v)...)
		out = append(out, all.ordered(v)...)
	}
	return out
}

// errStop ends a replay.
var errStop = errors.New("stop")

func (l *Log) replay(all *replayed, s replayer) []Violation {
	var out []Violation
	tell := func(invariant, format string, args ...any) {
		if len(out) < maxTold {
			out = append(out, Violation{Invariant: invariant,
				Text: fmt.Sprintf("partition %d: ", l.Partition) + fmt.Sprintf(format, args...)})
		}
	}
	m := model.New(l.Partition)
	var wall fsm.Wall
	var lease fsm.Lease
	modelled, count := true, 0
	err := l.Each(func(e *Entry, d *fsm.Entry) error {
		res := s.Apply(e.Index, d)
		if resultSum(&res) != e.sum {
			tell("I24", "entry %d: a replay does not do what %s did", e.Index, e.who)
			return errStop
		}
		if modelled = modelled && !elsewhere(d); modelled {
			if err := m.Apply(model.Step{Index: e.Index, Entry: d, Result: res}); err != nil {
				tell("I19", "entry %d %s: the model differs: %v", e.Index, Brief(e.Data), err)
				modelled = false
			}
		}
		w, x := s.Clocks()
		if w < wall || x < lease {
			tell("I23", "entry %d: time went back from %d, %d to %d, %d", e.Index, wall, lease, w, x)
		}
		wall, lease = w, x
		if dig, ok := l.digests[e.Index]; ok && dig.sum != s.Digest() {
			tell("I24", "entry %d: the state of %s is not that of a replay", e.Index, dig.who)
		}
		if count++; count%auditEvery == 0 {
			if err := s.CheckInvariants(); err != nil {
				tell("I16", "entry %d: %v", e.Index, err)
				return errStop
			}
		}
		all.note(l.Partition, e.Index, d, &res)
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		tell("I24", "%v", err)
	}
	if err := s.CheckInvariants(); err != nil {
		tell("I16", "at the end: %v", err)
	}
	return out
}

// elsewhere reports whether a share comes from another partition, or is served there. The model has one partition, so it
// says nothing from then on; every other check goes on.
func elsewhere(d *fsm.Entry) bool {
	return slices.ContainsFunc(d.Requests, func(q fsm.Request) bool {
		c, ok := q.Command.(*fsm.Rehome)
		return ok && c.Step != fsm.RehomeClose && c.Step != fsm.RehomeReopen
	})
}

// note collects the effects of an entry.
func (a *replayed) note(p fsm.PartitionID, index uint64, d *fsm.Entry, res *fsm.Result) {
	for i := range d.Requests {
		o := &res.Outcomes[i]
		if o.Repeated || o.Refusal != fsm.None {
			continue
		}
		a.effect(event{p: p, index: index}, d.Requests[i].Command, o)
	}
}

// effect collects what a command did that was not refused. A transaction does what its operations do.
func (a *replayed) effect(at event, c fsm.Command, o *fsm.Outcome) {
	switch c := c.(type) {
	case *fsm.Enqueue:
		for j := range c.Messages {
			if j < len(o.Duplicate) && o.Duplicate[j] || j >= len(o.Numbers) {
				continue
			}
			at.seq = o.Numbers[j]
			id := c.Messages[j].MessageID
			a.stored[id] = append(a.stored[id], at)
		}
	case *fsm.Settle:
		for j := range c.Items {
			if j < len(o.Refusals) && o.Refusals[j] != fsm.None {
				continue
			}
			at.seq, at.verdict = c.Items[j].Seq, c.Items[j].Verdict
			t := c.Items[j].Token.String()
			a.settled[t] = append(a.settled[t], at)
		}
	case *fsm.Commit:
		for j := range min(len(c.Ops), len(o.Ops)) {
			a.effect(at, c.Ops[j].Command, &o.Ops[j])
		}
	}
}

// plain is a token as the log has it: without the dashes of the wire.
func plain(token string) string {
	return string(slices.DeleteFunc([]byte(token), func(b byte) bool { return b == '-' }))
}

var verdicts = map[Kind]fsm.Verdict{Complete: fsm.Complete, Abandon: fsm.Abandon, Defer: fsm.Defer,
	Kill: fsm.Kill, Release: fsm.Return}

// mapped checks that what clients were told happened, once, and what was refused did not.
func (a *replayed) mapped(v *view) []Violation {
	r := report{name: "I4"}
	v.allSends(func(o *Op, m *Message) {
		if q := v.Queue(o.Entity); q != nil && q.DedupMillis > 0 {
			return
		}
		n := len(a.stored[m.ID])
		switch {
		case o.Ok() && n == 0:
			r.name = "I1"
			r.add([]*Op{o}, "%s was acknowledged and is in no log", m.ID)
		case o.Outcome == Failed && n > 0:
			r.name = "I2"
			r.add([]*Op{o}, "%s was refused and is in a log, at %+v", m.ID, a.stored[m.ID])
		case n > 1:
			r.name = "I4"
			r.add([]*Op{o}, "%s was sent once and is in the log at %+v", m.ID, a.stored[m.ID])
		case n == 1 && o.Kind == Schedule && o.Ok() && int64(a.stored[m.ID][0].seq) != o.Seq:
			r.name = "I3"
			r.add([]*Op{o}, "%s has number %d in the log", m.ID, a.stored[m.ID][0].seq)
		}
	})
	for _, o := range v.Ops {
		if !o.Kind.Settles() {
			continue
		}
		n := 0
		for _, e := range a.settled[plain(o.Message.Token)] {
			if e.verdict == verdicts[o.Kind] {
				n++
			}
		}
		switch {
		case o.Ok() && n == 0:
			r.name = "I7"
			r.add([]*Op{o}, "%s was acknowledged and is in no log", o.Kind)
		case o.Outcome == Failed && n > v.settledByOthers(o) && !v.settledBefore(o):
			r.name = "I7"
			r.add([]*Op{o}, "%s was refused and is in a log", o.Kind)
		case n > 1:
			r.name = "I7"
			r.add([]*Op{o}, "%s worked %d times", o.Kind, n)
		}
	}
	return r.list
}

// ordered checks that of two operations on a partition, of which one ended before the other began,
// the log has the first one first.
func (a *replayed) ordered(v *view) []Violation {
	r := report{name: "I3"}
	type stamp struct {
		at    int64
		end   bool
		index uint64
		op    *Op
	}
	lists := map[fsm.PartitionID][]stamp{}
	add := func(o *Op, events []event) {
		if !o.Ok() || len(events) != 1 {
			return
		}
		e := events[0]
		lists[e.p] = append(lists[e.p], stamp{o.Invoke, false, e.index, o}, stamp{o.Return, true, e.index, o})
	}
	for _, o := range v.Ops {
		switch {
		case o.Kind == Send && len(o.Messages) > 0:
			add(o, a.stored[o.Messages[0].ID])
		case o.Kind == Send || o.Kind == Schedule:
			add(o, a.stored[o.Message.ID])
		case o.Kind.Settles():
			add(o, a.settled[plain(o.Message.Token)])
		}
	}
	for _, list := range lists {
		slices.SortStableFunc(list, func(x, y stamp) int {
			return cmp.Or(cmp.Compare(x.at, y.at), cmpBool(x.end, y.end))
		})
		var last stamp
		for _, s := range list {
			if s.end && s.index > last.index {
				last = s
			}
			if !s.end && last.op != nil && s.index < last.index {
				r.add([]*Op{last.op, s.op}, "an operation at entry %d ended before one at entry %d began", last.index,
					s.index)
			}
		}
	}
	return r.list
}
