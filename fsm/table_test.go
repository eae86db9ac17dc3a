package fsm

import (
	"fmt"
	"strings"
	"testing"
)

// The columns of table 1.4 that this partition can be brought to.
var columns = []string{"none", "Scheduled", "Active", "Active+locked", "Deferred", "Deferred+locked",
	"DLQ Active", "DLQ locked", "DLQ Deferred"}

// cell brings a fresh queue's only message into the state of a column and returns its number and
// the last token it was locked with, current or stale.
func cell(d *driver, column string) (n SequenceNumber, token LockToken) {
	d.ok(0, Main, queue(7, func(d *Descriptor) {
		d.DefaultTTL, d.DeadLetterOnExpiration = 50_000, true
	}))
	lock := func(sub SubQueue) {
		token = d.ok(7, sub, &Lock{Max: 1}).Locked[0].Token
	}
	fetch := func(sub SubQueue) {
		token = d.ok(7, sub, &Receive{Numbers: []SequenceNumber{n}}).Locked[0].Token
	}
	if column == "Scheduled" {
		at := d.wall + 60_000
		n = d.ok(7, Main, &Enqueue{Messages: []Message{{ScheduledAt: at}}}).Numbers[0]
		return n, LockToken{1}
	}
	n = d.ok(7, Main, message1("m")).Numbers[0]
	switch column {
	case "none":
		lock(Main)
		d.ok(7, Main, settle(token, Complete))
	case "Active":
		lock(Main)
		d.ok(7, Main, settle(token, Return))
	case "Active+locked":
		lock(Main)
	case "Deferred", "Deferred+locked":
		lock(Main)
		d.ok(7, Main, settle(token, Defer))
		if column != "Deferred" {
			fetch(Main)
		}
	default:
		lock(Main)
		d.ok(7, Main, settle(token, Kill))
		if column != "DLQ Active" {
			lock(DeadLetter)
		}
		if column == "DLQ Deferred" {
			d.ok(7, DeadLetter, settle(token, Defer))
		}
	}
	return n, token
}

// where tells in the words of the table where the message is now, and its count.
func where(d *driver) string {
	var found []string
	for sub := Main; sub <= DeadLetter; sub++ {
		b := &d.s.write(7).boxes[sub]
		b.messages.Scan(func(_ uint64, m message) bool {
			w := []string{"Active", "Deferred", "Scheduled"}[m.state()]
			if sub == DeadLetter {
				w = "DLQ " + w
			}
			if m.locked() {
				w += "+locked"
			}
			found = append(found, fmt.Sprintf("%s f=%d", w, m.attempts()))
			return true
		})
	}
	return strings.Join(found, ", ")
}

// number is that of the only message, 0 if there is none.
func number(d *driver) SequenceNumber {
	for sub := Main; sub <= DeadLetter; sub++ {
		q := QueryRequest{Entity: 7, Sub: sub, Query: &Peek{Max: 2, MaxBytes: 1 << 20}}
		for _, m := range d.s.Query(q).Messages {
			return m.Seq
		}
	}
	return 0
}

// counted are the counters of the queue, but for its size and its last use.
func counted(d *driver) EntityCounts {
	c := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}).Counts
	c.SizeBytes, c.AccessedAt = 0, 0
	return c
}

// countersOf are the counters of a queue whose only message is in that state of the table (S-244).
func countersOf(state string) (c EntityCounts) {
	word, _, _ := strings.Cut(state, " f=")
	word, locked := strings.CutSuffix(word, "+locked")
	switch {
	case strings.HasPrefix(word, "DLQ"):
		c.DeadLetter = 1
		return c
	case word == "Scheduled":
		c.Scheduled = 1
	case word != "":
		c.Active = 1
	}
	if word == "Deferred" {
		c.Deferred = 1
	}
	if locked {
		c.Locked = 1
	}
	return c
}

// row is one command of the table with the result for each column: a refusal, "=" for no change, or
// the new state.
type row struct {
	name string
	do   func(d *driver, n SequenceNumber, t LockToken) string
	want [9]string
}

func settleRow(name string, v Verdict, sub SubQueue, want [9]string) row {
	return row{name, func(d *driver, _ SequenceNumber, t LockToken) string {
		o := d.do(7, sub, settle(t, v))
		return refusalNames[o.Refusals[0]]
	}, want}
}

func refusalRow(name string, sub SubQueue, c func(SequenceNumber, LockToken) Command, want [9]string) row {
	return row{name, func(d *driver, n SequenceNumber, t LockToken) string {
		return refusalNames[d.do(7, sub, c(n, t)).Refusal]
	}, want}
}

const (
	ll = "MessageLockLost"
	nf = "MessageNotFound"
	op = "InvalidOperation"
)

func tableRows() []row {
	lock := func(remove bool) func(SequenceNumber, LockToken) Command {
		return func(SequenceNumber, LockToken) Command { return &Lock{Max: 1, Delete: remove} }
	}
	fetch := func(remove bool) func(SequenceNumber, LockToken) Command {
		return func(n SequenceNumber, _ LockToken) Command {
			return &Receive{Numbers: []SequenceNumber{n}, Delete: remove}
		}
	}
	expiry := func(d *driver, _ SequenceNumber, _ LockToken) string {
		d.after(5000)
		d.apply(Request{Command: &Tick{}})
		return "None"
	}
	outlive := func(listeners ...EntityID) func(*driver, SequenceNumber, LockToken) string {
		return func(d *driver, _ SequenceNumber, _ LockToken) string {
			d.wall += 50_000
			d.apply(Request{Command: &Tick{Listeners: listeners}})
			return "None"
		}
	}
	activation := func(d *driver, _ SequenceNumber, _ LockToken) string {
		d.wall += 60_000
		d.apply(Request{Command: &Tick{}})
		return "None"
	}
	wrong := func(v Verdict) func(*driver, SequenceNumber, LockToken) string {
		return func(d *driver, _ SequenceNumber, _ LockToken) string {
			a := d.do(7, Main, settle(LockToken{7}, v)).Refusals[0]
			b := d.do(7, DeadLetter, settle(LockToken{7}, v)).Refusals[0]
			return refusalNames[max(a, b)]
		}
	}
	all := func(s string) (w [9]string) {
		for i := range w {
			w[i] = s
		}
		return w
	}
	renew := func(_ SequenceNumber, t LockToken) Command { return &Renew{Tokens: []LockToken{t}} }
	purge := func(SequenceNumber, LockToken) Command { return &DeleteMessages{Max: 1} }
	cancel := func(n SequenceNumber, _ LockToken) Command {
		return &Cancel{Numbers: []SequenceNumber{n}}
	}
	return []row{
		refusalRow("receive, main", Main, lock(false),
			[9]string{"=", "=", "Active+locked f=0", "=", "=", "=", "=", "=", "="}),
		refusalRow("receive, DLQ", DeadLetter, lock(false),
			[9]string{"=", "=", "=", "=", "=", "=", "DLQ Active+locked f=0", "=", "="}),
		refusalRow("receive and delete, main", Main, lock(true),
			[9]string{"=", "=", "", "=", "=", "=", "=", "=", "="}),
		refusalRow("receive and delete, DLQ", DeadLetter, lock(true),
			[9]string{"=", "=", "=", "=", "=", "=", "", "=", "="}),
		refusalRow("receive by number, main", Main, fetch(false),
			[9]string{nf, nf, nf, nf, "Deferred+locked f=1", nf, nf, nf, nf}),
		refusalRow("receive by number and delete, main", Main, fetch(true),
			[9]string{nf, nf, nf, nf, "", nf, nf, nf, nf}),
		refusalRow("receive by number, DLQ", DeadLetter, fetch(false),
			[9]string{nf, nf, nf, nf, nf, nf, nf, nf, "DLQ Deferred+locked f=0"}),
		refusalRow("receive by number and delete, DLQ", DeadLetter, fetch(true),
			[9]string{nf, nf, nf, nf, nf, nf, nf, nf, ""}),
		settleRow("complete, main", Complete, Main, [9]string{ll, ll, ll, "", ll, "", ll, ll, ll}),
		settleRow("complete, DLQ", Complete, DeadLetter, [9]string{ll, ll, ll, ll, ll, ll, ll, "", ll}),
		settleRow("abandon, main", Abandon, Main,
			[9]string{ll, ll, ll, "Active f=1", ll, "Deferred f=2", ll, ll, ll}),
		settleRow("abandon, DLQ", Abandon, DeadLetter,
			[9]string{ll, ll, ll, ll, ll, ll, ll, "DLQ Active f=0", ll}),
		settleRow("defer, main", Defer, Main,
			[9]string{ll, ll, ll, "Deferred f=1", ll, "Deferred f=2", ll, ll, ll}),
		settleRow("defer, DLQ", Defer, DeadLetter,
			[9]string{ll, ll, ll, ll, ll, ll, ll, "DLQ Deferred f=0", ll}),
		settleRow("dead-letter, main", Kill, Main,
			[9]string{ll, ll, ll, "DLQ Active f=0", ll, "DLQ Active f=1", ll, ll, ll}),
		settleRow("dead-letter, DLQ", Kill, DeadLetter, [9]string{ll, ll, ll, ll, ll, ll, ll, op, ll}),
		refusalRow("renew, main", Main, renew, [9]string{ll, ll, ll, "=", ll, "=", ll, ll, ll}),
		refusalRow("renew, DLQ", DeadLetter, renew, [9]string{ll, ll, ll, ll, ll, ll, ll, "=", ll}),
		{"complete, wrong token", wrong(Complete), all(ll)},
		{"abandon, wrong token", wrong(Abandon), all(ll)},
		{"defer, wrong token", wrong(Defer), all(ll)},
		{"dead-letter, wrong token", wrong(Kill), all(ll)},
		refusalRow("renew, wrong token", Main,
			func(SequenceNumber, LockToken) Command { return &Renew{Tokens: []LockToken{{7}}} }, all(ll)),
		refusalRow("delete, main", Main, purge, [9]string{"=", "=", "", "=", "=", "=", "=", "=", "="}),
		refusalRow("delete, DLQ", DeadLetter, purge,
			[9]string{"=", "=", "=", "=", "=", "=", "", "=", "="}),
		refusalRow("cancel", Main, cancel, [9]string{nf, "", nf, nf, nf, nf, nf, nf, nf}),
		{"activation", activation, [9]string{"=", "Active f=0", "=", "=", "=", "=", "=", "=", "="}},
		{"end of life without a listener", outlive(),
			[9]string{"=", "=", "=", "=", "=", "=", "=", "=", "="}},
		{"end of life with a listener", outlive(7),
			[9]string{"=", "=", "DLQ Active f=0", "=", "=", "=", "=", "=", "="}},
		{"lock expiry", expiry,
			[9]string{"=", "=", "=", "Active f=1", "=", "Deferred f=2", "=", "DLQ Active f=0", "="}},
	}
}

// dropsOf adds the counters of what a command deletes without completing it.
func dropsOf(row string, c EntityCounts) EntityCounts {
	switch row {
	case "delete, main", "delete, DLQ":
		c.Dropped[DropPurged] = 1
	case "cancel":
		c.Dropped[DropCancelled] = 1
	}
	return c
}

// T-14 // S-5, S-12, S-19, S-20: every cell of table 1.4 for the commands there are.
func TestT14EveryCellOfTheTableOfStatesAndCommands(t *testing.T) {
	for _, r := range tableRows() {
		for i, column := range columns {
			t.Run(r.name+"/"+column, func(t *testing.T) {
				d := newDriver(t)
				n, token := cell(d, column)
				before, countedBefore := where(d), counted(d)
				refusal := r.do(d, n, token)
				after := where(d)
				want := r.want[i]
				refused := want == ll || want == nf || want == op
				if refused || want == "=" {
					if now := counted(d); now != countedBefore {
						t.Errorf("counters %+v became %+v", countedBefore, now)
					}
				} else if got, want := counted(d), dropsOf(r.name, countersOf(want)); got != want {
					t.Errorf("counters %+v, want %+v", got, want)
				}
				if got, stays := number(d), r.name != "activation" || column != "Scheduled"; got != 0 && (got == n) != stays {
					t.Errorf("number %d became %d", n, got)
				}
				switch {
				case refused && (refusal != want || after != before):
					t.Errorf("%s, %q: want %s and no change", refusal, after, want)
				case !refused && refusal != "None":
					t.Errorf("refused %s", refusal)
				case want == "=" && after != before:
					t.Errorf("%q became %q", before, after)
				case !refused && want != "=" && after != want:
					t.Errorf("%q became %q, want %q", before, after, want)
				}
				if err := d.s.CheckInvariants(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// T-14 // S-12, S-19: a peek shows a message in every state, where it is and nowhere else, and changes
// nothing.
func TestT14APeekShowsEveryState(t *testing.T) {
	for _, column := range columns {
		t.Run(column, func(t *testing.T) {
			d := newDriver(t)
			n, _ := cell(d, column)
			before := where(d)
			for sub := Main; sub <= DeadLetter; sub++ {
				a := d.s.Query(QueryRequest{Entity: 7, Sub: sub, Query: &Peek{From: n, Max: 10, MaxBytes: 1 << 20}})
				dead := strings.HasPrefix(column, "DLQ")
				want := 0
				if column != "none" && dead == (sub == DeadLetter) {
					want = 1
				}
				if len(a.Messages) != want || want == 1 && a.Messages[0].Seq != n {
					t.Errorf("a peek at %s shows %+v, want %d messages", sub, a.Messages, want)
				}
			}
			if after := where(d); after != before {
				t.Errorf("%q became %q", before, after)
			}
		})
	}
}

// T-14 // S-19, S-68, S-74: on a session entity all of it needs the session lock first, whatever
// state a message is in.
func TestT14WithoutTheSessionLockNoCellIsConsulted(t *testing.T) {
	for name, stale := range map[string]bool{"never held": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			d.ok(0, Main, queue(7, withSessions))
			d.ok(7, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "s"}}})
			p := d.ok(7, Main, &AcceptSession{ID: "s"}).Session
			tok := d.ok(7, Main, &Lock{Max: 1, Session: p}).Locked[0].Token
			if stale {
				d.ok(7, Main, &ReleaseSession{Session: p, Orderly: true})
				d.ok(7, Main, &AcceptSession{ID: "s"})
			} else {
				p.Token = LockToken{3}
			}
			before := where(d)
			items := []SettleItem{{Token: tok, Verdict: Complete}}
			for _, c := range []Command{
				&Lock{Max: 1, Session: p}, &Lock{Max: 1, Session: p, Delete: true},
				&Receive{Session: p, Numbers: []SequenceNumber{1}}, &Settle{Session: p, Items: items},
				&RenewSession{Session: p}, &ReleaseSession{Session: p}, &SetSessionState{Session: p},
			} {
				if o := d.do(7, Main, c); o.Refusal != SessionLockLost {
					t.Errorf("%T: %s", c, refusalNames[o.Refusal])
				}
			}
			q := QueryRequest{Entity: 7, Query: &GetSessionState{Session: p}}
			if a := d.s.Query(q); a.Refusal != SessionLockLost {
				t.Errorf("GetSessionState: %s", refusalNames[a.Refusal])
			}
			if after := where(d); after != before {
				t.Errorf("%q became %q", before, after)
			}
		})
	}
}

// S-2: refusals of what the entity is not made for.
func TestWhatAnEntityIsNotMadeForIsRefused(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(0, Main, queue(8, withSessions))
	d.ok(0, Main, queue(9, func(d *Descriptor) { d.Kind = Topic }))
	d.ok(0, Main, queue(11, func(d *Descriptor) { d.ForwardTo = "x" }))
	long := strings.Repeat("é", 129)
	proof := SessionProof{ID: "s", Token: LockToken{1}}
	in := func(m Message) Command { return &Enqueue{Messages: []Message{m}} }
	for _, c := range []struct {
		entity EntityID
		sub    SubQueue
		c      Command
		want   Refusal
	}{
		{12, Main, &Lock{Max: 1}, Stale},
		{7, TransferQueue, &Lock{Max: 1}, InvalidArgument},
		{7, Main, &AcceptSession{ID: "s"}, SessionNotSupported}, // S-34
		{8, DeadLetter, &AcceptSession{ID: "s"}, SessionNotSupported},
		{7, Main, &RenewSession{Session: proof}, SessionNotSupported},
		{7, Main, &SetSessionState{Session: proof}, SessionNotSupported},
		{7, Main, &ReleaseSession{Session: proof}, SessionNotSupported},
		{7, Main, &Lock{Max: 1, Session: proof}, SessionNotSupported},
		{8, Main, &Lock{Max: 1}, SessionRequired}, // S-33
		{8, Main, message1("m"), SessionRequired}, // S-30
		{8, Main, in(Message{HasSession: true, SessionID: long}), InvalidArgument},
		{8, Main, &AcceptSession{ID: long}, InvalidArgument}, // S-26
		{8, Main, &Renew{Tokens: []LockToken{{1}}}, InvalidOperation},
		{7, Main, in(Message{TTL: -1}), InvalidArgument}, // S-205
		{7, Main, &Redrive{Max: 1}, InvalidOperation},
		{7, DeadLetter, &Redrive{}, InvalidArgument},
		{7, DeadLetter, &Redrive{Max: 1001}, InvalidArgument},
		{7, Main, &DeleteMessages{}, InvalidArgument},          // T-220 // S-263
		{7, Main, &DeleteMessages{Max: 4001}, InvalidArgument}, // T-220
		{7, Main, &DeleteMessages{Max: 1, Before: -1}, InvalidArgument},
		{8, Main, &DeleteMessages{Max: 1}, SessionLockLost},                 // T-221 // S-264
		{8, Main, &DeleteMessages{Max: 1, Session: proof}, SessionLockLost}, // T-221
		{7, Main, &DeleteMessages{Max: 1, Session: proof}, SessionNotSupported},
		{7, Main, &Receive{Numbers: make([]SequenceNumber, 1001)}, InvalidArgument},
		{7, Main, &Cancel{Numbers: make([]SequenceNumber, 1001)}, InvalidArgument},
		{7, DeadLetter, &Cancel{Numbers: make([]SequenceNumber, 1)}, InvalidOperation},
		{7, Main, &Change{}, InvalidOperation},
		{7, Main, nil, InvalidOperation},
		{0, Main, nil, Stale},
		{0, Main, &BecomeLeader{}, InvalidOperation},
		{0, Main, queue(7, func(d *Descriptor) { d.Version, d.DetectDuplicates = 9, true }), InvalidOperation}, // S-261
		{0, Main, queue(0), InvalidArgument},
		{6, Main, queue(7), InvalidArgument},
		{0, Main, queue(6, func(d *Descriptor) { d.Partitions = []PartitionID{2} }), InvalidArgument},
		{0, Main, queue(6, func(d *Descriptor) { d.LockDuration = 0 }), InvalidArgument},
		{0, Main, queue(6, func(d *Descriptor) { d.MaxDelivery = 0 }), InvalidArgument},
	} {
		before := d.s.Digest()
		if o := d.do(c.entity, c.sub, c.c); o.Refusal != c.want {
			t.Errorf("%d%s %T: %s, want %s", c.entity, c.sub, c.c, refusalNames[o.Refusal],
				refusalNames[c.want])
		}
		if d.s.Digest() != before { // T-49 // S-3
			t.Errorf("%T was refused and changed something", c.c)
		}
	}
	id := strings.Repeat("é", 128)
	d.ok(8, Main, in(Message{HasSession: true, SessionID: id}))
	d.ok(8, Main, &AcceptSession{ID: id})
}

// T-23 // S-154: properties that do not fit leave the message locked by the same token.
func TestPropertiesBeyondTheLimitAreRefused(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, message1("m"))
	tok := d.ok(7, Main, &Lock{Max: 1}).Locked[0].Token
	before := d.s.Digest()
	c := settle(tok, Abandon)
	c.Items[0].Properties = []Property{{Key: "k", Value: make([]byte, maxExtraBytes)}}
	if o := d.do(7, Main, c); o.Refusals[0] != MessageSizeExceeded || d.s.Digest() != before {
		t.Fatalf("%+v", o)
	}
	c.Items[0].Properties[0].Value = make([]byte, maxExtraBytes-1)
	if o := d.do(7, Main, c); o.Refusals[0] != None {
		t.Fatalf("%+v", o)
	}
}

// An index that does not rise means that the log is not a log.
func TestAnIndexThatDoesNotRisePanics(t *testing.T) {
	d := newDriver(t)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	d.s.Apply(d.index, d.entry())
}

// S-288: one Tick does a bounded part of what is due; NextDeadline calls for the next one.
func TestATickIsBounded(t *testing.T) {
	const n = maxDuePerTick + 10
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, messages(n))
	d.ok(7, Main, &Lock{Max: n})
	if _, lease := d.s.NextDeadline(); lease != d.lease+5000 {
		t.Errorf("next deadline %d", lease)
	}
	d.after(5000)
	for _, want := range []uint64{10, 0} {
		if _, lease := d.s.NextDeadline(); lease != d.lease {
			t.Errorf("next deadline %d, want %d", lease, d.lease)
		}
		d.apply(Request{Command: &Tick{}})
		a := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}})
		if a.Counts.Locked != want {
			t.Errorf("%d locked, want %d", a.Counts.Locked, want)
		}
	}
	if wall, lease := d.s.NextDeadline(); wall != 0 || lease != 0 { // T-248
		t.Errorf("next deadlines %d and %d", wall, lease)
	}
	d.ok(7, Main, &DropEntity{})
	if _, lease := d.s.NextDeadline(); lease == 0 || lease > d.lease {
		t.Errorf("bodies wait to be freed until %d", lease)
	}
	if r := d.apply(Request{Command: &Tick{}}); len(r.Freed) != n {
		t.Errorf("%d of %d freed", len(r.Freed), n)
	}
}

// T-6; S-18, S-290: what has expired has expired, although nothing was applied since.
func TestT6AnExpiredLockIsLostWithoutATick(t *testing.T) {
	for _, c := range []struct {
		name   string
		before Millis // the deadline, at which the command is applied
		want   Refusal
	}{{"a millisecond before", 1, None}, {"at the deadline", 0, MessageLockLost},
		{"after it", -1, MessageLockLost}} {
		t.Run(c.name, func(t *testing.T) {
			d := newDriver(t)
			d.ok(0, Main, queue(7, func(d *Descriptor) { d.LockDuration = 5_000 }))
			d.ok(7, Main, message1("m"))
			token := d.ok(7, Main, &Lock{Max: 1}).Locked[0].Token
			d.after(5_000 - c.before)
			o := d.do(7, Main, settle(token, Complete))
			if got := o.cause(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
