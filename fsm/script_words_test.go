package fsm

import (
	"fmt"
	"reflect"
	"sort"
	"strings"
)

// command makes the command of a step. A command whose fields have a plain form needs no case: see derived.
func (s *script) command(word string) Command {
	switch word {
	case "lead":
		return &BecomeLeader{Node: "n"}
	case "tick":
		c := &Tick{}
		for _, name := range s.list("listeners") {
			c.Listeners = append(c.Listeners, s.ids[name])
		}
		return c
	case "queue":
		return s.queue()
	case "topic":
		return s.topic()
	case "sub":
		return s.subscription()
	case "drop":
		return &DropEntity{}
	case "enqueue":
		return s.enqueue()
	case "lock":
		return &Lock{Session: s.proof(), Max: uint32(s.arg("max", 1)), MaxBytes: uint32(s.arg("bytes", 0)),
			Delete: s.flags["delete"]}
	case "delete":
		c := &DeleteMessages{Session: s.proof(), Max: uint32(s.arg("max", 4000))}
		if v, ok := s.args["before"]; ok {
			c.Before = startWall + Wall(s.number(v))
		}
		return c
	case "redrive":
		if numbers := s.numbers(); len(numbers) > 0 {
			return &Redrive{Numbers: numbers, Discard: s.flags["discard"]}
		}
		c := &Redrive{Max: uint32(s.arg("max", 100)), After: s.arg("after", 0)}
		c.Reason, c.HasReason = s.args["reason"]
		c.Session, c.HasSession = s.args["session"]
		for key, at := range map[string]*Wall{"from": &c.From, "until": &c.Until} {
			if v, ok := s.args[key]; ok {
				*at = startWall + Wall(s.number(v))
			}
		}
		return c
	case "accept":
		c := &AcceptSession{ID: s.args["session"], Next: s.flags["next"], Shared: s.flags["shared"]}
		if t, ok := s.args["present"]; ok {
			c.Presented = s.token(t)
		}
		return c
	case "watch":
		return &WatchSession{Session: s.proof()}
	case "release":
		return &ReleaseSession{Session: s.proof(), Orderly: !s.flags["lost"], Unsure: s.flags["unsure"], Unsent: s.tokenList()}
	case "rehome":
		return &Rehome{Step: RehomeStep(s.arg("step", 0)), Epoch: s.arg("move", 0)}
	case "setstate":
		return &SetSessionState{Session: s.proof(), State: []byte(s.args["state"]), Clear: s.flags["clear"]}
	}
	for v, name := range []string{"complete", "abandon", "defer", "kill", "return"} {
		if word == name {
			return s.settlement(Complete + Verdict(v))
		}
	}
	return s.derived(word)
}

// derived makes the command whose type has the name of a word, in lower case. A field is given by its name in lower
// case. A field Has… is true if the field of that name is given.
func (s *script) derived(word string) Command {
	for _, c := range goldenCommands() {
		t := reflect.TypeOf(c).Elem()
		if strings.ToLower(t.Name()) != word {
			continue
		}
		made := reflect.New(t)
		for i := range t.NumField() {
			s.fill(strings.ToLower(t.Field(i).Name), made.Elem().Field(i))
		}
		return made.Interface().(Command)
	}
	s.tb.Fatalf("unknown step %q", s.line)
	return nil
}

// fill sets a field of a command to the argument of its name.
func (s *script) fill(name string, field reflect.Value) {
	switch at := field.Addr().Interface().(type) {
	case *SessionProof:
		*at = s.proof()
	case *[]LockToken:
		*at = s.tokenList()
	case *[]SequenceNumber:
		*at = s.numbers()
	case *[]uint64:
		for _, v := range s.list(name) {
			*at = append(*at, s.number(v))
		}
	case *Wall:
		if v, ok := s.args[name]; ok {
			*at = startWall + Wall(s.number(v))
		}
	case *Millis:
		*at = Millis(s.arg(name, 0))
	case *string:
		*at = s.args[name]
	case *bool:
		*at = s.flags[name]
		if of, ok := strings.CutPrefix(name, "has"); ok {
			_, *at = s.args[of]
		}
	default:
		if !field.CanUint() {
			s.tb.Fatalf("%q: a %s has no form in a script: func command needs a case", s.line, field.Type())
		}
		field.SetUint(s.arg(name, 0))
	}
}

func (s *script) tokenList() (ts []LockToken) {
	for _, v := range s.list("tokens") {
		ts = append(ts, s.token(v))
	}
	return ts
}

func (s *script) settlement(v Verdict) *Settle {
	c := &Settle{Session: s.proof()}
	for _, t := range s.tokenList() {
		it := SettleItem{Token: t, Verdict: v, Reason: s.args["reason"], Description: s.args["text"],
			Seq: SequenceNumber(s.arg("seq", 0)), Delay: Millis(s.arg("delay", 0))}
		for _, p := range s.list("props") {
			k, v, _ := strings.Cut(p, ":")
			it.Properties = append(it.Properties, Property{Key: k, Value: []byte(v)})
		}
		c.Items = append(c.Items, it)
	}
	return c
}

func (s *script) enqueue() *Enqueue {
	c := &Enqueue{}
	id, has := s.args["session"]
	offset := uint32(0)
	ids := s.list("ids")
	for i, b := range s.list("body") {
		m := Message{Body: s.stored(b), SessionID: id, HasSession: has, TTL: Millis(s.arg("ttl", 0)),
			BodyOffset: offset, PartitionKey: s.args["key"]}
		if n := s.arg("number", 0); n > 0 {
			m.Reserved = SequenceNumber(n) + SequenceNumber(i)
		}
		if i < len(ids) {
			m.MessageID = ids[i]
		}
		if v, ok := s.args["at"]; ok {
			m.ScheduledAt = startWall + Wall(s.number(v))
		}
		if n := s.arg("size", 0); n > 0 {
			m.Body = append(m.Body, make([]byte, n-uint64(len(b)))...)
		}
		offset += uint32(len(m.Body))
		c.Messages = append(c.Messages, m)
	}
	return c
}

func (s *script) queue() *PutEntity {
	s.version++
	return queue(s.entity(), func(d *Descriptor) {
		d.Version = s.arg("version", s.version)
		d.RequiresSession = s.flags["sessions"]
		d.NoDeadLetter = s.flags["nodlq"]
		d.DeadLetterOnExpiration = s.flags["dead"]
		d.LockDuration = Millis(s.arg("lock", 5000))
		d.MaxDelivery = uint32(s.arg("max", 10))
		d.MaxSizeBytes = s.arg("quota", 1<<30)
		d.MaxMessageBytes = uint32(s.arg("bytes", 1<<20))
		d.DefaultTTL = Millis(s.arg("ttl", uint64(Unlimited)))
		if p := s.arg("partitioned", 0); p > 0 {
			d.Partitioned = true
			d.Partitions = []PartitionID{2, 1}
		}
		d.AutoDeleteOnIdle = Millis(s.arg("idle", uint64(Unlimited)))
		d.ProcessedHistory, d.ProcessedHistoryBody = s.flags["processed"], s.flags["bodies"]
		d.AcceptedHistory = s.flags["accepted"]
		d.HistoryCount, d.HistoryAge = uint32(s.arg("newest", 0)), Millis(s.arg("age", 0))
		d.HistoryMaxBytes = s.arg("cap", 0)
		d.RetryBackoff = RetryBackoff{Min: Millis(s.arg("backoff", 0)), Max: Millis(s.arg("backoffmax", 0)),
			Multiplier: uint32(s.arg("multiplier", 0)), Jitter: uint32(s.arg("jitter", 0))}
		d.DuplicateWindow = Millis(s.arg("window", 0))
		d.DetectDuplicates = d.DuplicateWindow > 0
		d.Status = map[string]Status{"sends": ReceiveDisabled, "receives": SendDisabled,
			"nothing": Disabled}[s.args["only"]]
	})
}

// query makes the question of a step, nil if it is none.
func (s *script) query(word string) Query {
	id, has := s.args["session"]
	switch word {
	case "peek":
		return &Peek{From: SequenceNumber(s.arg("from", 0)), Max: uint32(s.arg("max", 100)),
			HasSession: has, Session: id, MaxBytes: uint32(s.arg("bytes", 0))}
	case "getstate":
		return &GetSessionState{Session: s.proof()}
	case "locks":
		return &ListLocks{After: s.arg("after", 0), Max: uint32(s.arg("max", 100))}
	case "processed", "accepted", "releases":
		c := &History{After: s.arg("after", 0), Max: uint32(s.arg("max", 100)), MaxBytes: uint32(s.arg("bytes", 0))}
		if word == "accepted" {
			c.Kind = Accepted
		}
		if word == "releases" {
			c.Kind = Releases
		}
		return c
	case "browse":
		c := &Browse{From: SequenceNumber(s.arg("from", 0)), After: s.arg("after", 0), HasSession: has,
			Max: uint32(s.arg("max", 100)), MaxBytes: uint32(s.arg("bytes", 0)), Session: id}
		for i, state := range []string{"active", "deferred", "scheduled"} {
			if s.flags[state] {
				c.States |= 1 << i
			}
		}
		return c
	case "idle":
		return &Idle{}
	case "counts":
		return &Counts{}
	case "sessions":
		after, hasAfter := s.args["after"]
		c := &ListSessions{Max: uint32(s.arg("max", 100)), After: after, HasAfter: hasAfter}
		if v, ok := s.args["updated"]; ok {
			c.UpdatedAfter = startWall + Wall(s.number(v))
		}
		return c
	}
	return nil
}

var refusalNames = []string{"None", "Stale", "NotLeader", "MessageLockLost", "SessionLockLost",
	"SessionCannotBeLocked", "NoSession", "MessageNotFound", "EntityNotFound", "EntityExists",
	"EntityDisabled", "MessageSizeExceeded", "QuotaExceeded", "SessionRequired", "SessionNotSupported",
	"InvalidOperation", "InvalidArgument", "Busy", "NodeExpired",
	"TransactionAborted", "TransactionTooLarge", "Unauthorized"}

func (s *script) showResult(r *Result) string {
	var b strings.Builder
	for i := range r.Outcomes {
		s.showOutcome(&b, &r.Outcomes[i])
	}
	for _, k := range r.Wake {
		what := "message"
		if k.Kind == WaitSession {
			what = "session"
		}
		if k.Kind == WaitLost {
			what = "end of the lock"
		}
		fmt.Fprintf(&b, "wake %s %s", s.name(k.Entity), what)
		if k.Sub != Main {
			b.WriteString(" " + k.Sub.String())
		}
		if k.HasSession {
			fmt.Fprintf(&b, " of %q", k.Session)
		}
		b.WriteString("\n")
	}
	if len(r.Freed) > 0 {
		b.WriteString("freed")
		for _, ref := range r.Freed {
			b.WriteString(" " + s.body(ref))
		}
		b.WriteString("\n")
	}
	for _, id := range r.Idle {
		fmt.Fprintf(&b, "idle %s\n", s.name(id))
	}
	for i := range r.Drops {
		d := &r.Drops[i]
		fmt.Fprintf(&b, "drop %s %v seq=%d count=%d total=%d", s.name(d.Entity), d.Reason, d.Number, d.Count, d.Total)
		if d.Ref.Length > 0 {
			b.WriteString(" body " + s.body(d.Ref))
		}
		if d.MessageID != "" {
			fmt.Fprintf(&b, " id=%q", d.MessageID)
		}
		b.WriteString("\n")
	}
	for _, id := range r.Dropped {
		fmt.Fprintf(&b, "dropped %s\n", s.name(id))
	}
	return b.String()
}

func (s *script) name(id EntityID) string {
	var names []string
	for n, i := range s.ids {
		if i == id {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return strings.Join(names, "|")
}

func (s *script) body(ref BodyRef) string {
	body, ok := s.bodies[ref]
	if !ok {
		return fmt.Sprint(ref)
	}
	if _, label, stored := strings.Cut(body, bodyMark); stored {
		return label
	}
	return strings.TrimRight(body, "\x00")
}

func (s *script) showOutcome(b *strings.Builder, o *Outcome) {
	if o.Repeated {
		b.WriteString("repeated\n")
	}
	if o.Refusal != None {
		fmt.Fprintf(b, "refused %s", refusalNames[o.Refusal])
		if o.Detail != "" {
			fmt.Fprintf(b, ": %s", o.Detail)
		}
		b.WriteString("\n")
	}
	if len(o.Numbers) > 0 {
		fmt.Fprintf(b, "numbers %v at=%d", o.Numbers, o.EnqueuedAt-startWall)
		if o.Duplicate != nil {
			fmt.Fprintf(b, " duplicate=%v", o.Duplicate)
		}
		b.WriteString("\n")
	}
	for i := range o.Locked {
		s.showDelivery(b, &o.Locked[i])
	}
	if o.Count > 0 {
		fmt.Fprintf(b, "count=%d\n", o.Count)
	}
	if o.Next > 0 {
		fmt.Fprintf(b, "next %d\n", o.Next)
	}
	if len(o.Refusals) > 0 && o.Refusal == None {
		for i, r := range o.Refusals {
			if r != None {
				fmt.Fprintf(b, "item %d refused %s\n", i, refusalNames[r])
			}
		}
	}
	if !o.Session.Token.IsZero() {
		s.proofs[s.args["q"]+"/"+o.Session.ID] = o.Session.Token
		fmt.Fprintf(b, "session %q token=%s\n", o.Session.ID, s.tokenName(o.Session.Token))
	}
	if !o.Shared.IsZero() {
		fmt.Fprintf(b, "shared %s\n", s.tokenName(o.Shared))
	}
	if o.LockedUntil != 0 {
		fmt.Fprintf(b, "until=%d\n", o.LockedUntil-startWall)
	}
}

func (s *script) showDelivery(b *strings.Builder, d *Delivery) {
	fmt.Fprintf(b, "%s seq=%d", s.body(d.Ref), d.Seq)
	if !d.Token.IsZero() {
		fmt.Fprintf(b, " token=%s until=%d", s.tokenName(d.Token), d.LockedUntil-startWall)
	}
	fmt.Fprintf(b, " f=%d", d.Attempts)
	if d.State != StateActive {
		b.WriteString([]string{"", " deferred", " scheduled"}[d.State])
	}
	if d.EnqueuedAt != 0 {
		fmt.Fprintf(b, " enqueued=%d", d.EnqueuedAt-startWall)
	}
	if d.ExpiresAt != 0 {
		fmt.Fprintf(b, " expires=%d", d.ExpiresAt-startWall)
	}
	if d.ScheduledAt != 0 {
		fmt.Fprintf(b, " at=%d", d.ScheduledAt-startWall)
	}
	if d.Reason != "" || d.Description != "" {
		fmt.Fprintf(b, " reason=%q text=%q", d.Reason, d.Description)
	}
	showChanges(b, d)
	b.WriteString("\n")
}

func (s *script) showAnswer(a Answer) string {
	var b strings.Builder
	if a.Refusal != None {
		fmt.Fprintf(&b, "refused %s\n", refusalNames[a.Refusal])
	}
	for i := range a.Messages {
		if a.History == nil {
			s.showDelivery(&b, &a.Messages[i])
		}
	}
	for i := range a.History {
		s.showRecord(&b, &a.History[i], &a.Messages[i])
	}
	for i := range a.Locks {
		l := &a.Locks[i]
		fmt.Fprintf(&b, "seq=%d taken=%d until=%d by %x/%d", l.Number, l.TakenAt-startWall,
			l.LockedUntil-startWall, uint64(l.By.Node), l.By.Pump)
		if l.State != StateActive {
			b.WriteString(" deferred")
		}
		if l.HasSession {
			fmt.Fprintf(&b, " of %q", l.SessionID)
		}
		for n, t := range s.tokens {
			if [4]byte(t[2:6]) == l.Digits {
				fmt.Fprintf(&b, " T%d", n+1)
			}
		}
		b.WriteString("\n")
	}
	if a.Next != 0 {
		fmt.Fprintf(&b, "next %d\n", a.Next)
	}
	if a.IdleFor > 0 {
		fmt.Fprintf(&b, "idle for %d\n", a.IdleFor)
	}
	if a.HasState {
		fmt.Fprintf(&b, "state %q\n", a.State)
	}
	if len(a.Sessions) > 0 {
		fmt.Fprintf(&b, "sessions %q\n", a.Sessions)
	}
	if a.Counts != (EntityCounts{}) {
		c := a.Counts
		fmt.Fprintf(&b, "active=%d scheduled=%d dead=%d locked=%d deferred=%d sessions=%d bytes=%d\n",
			c.Active, c.Scheduled, c.DeadLetter, c.Locked, c.Deferred, c.Sessions, c.SizeBytes)
		for why, n := range c.Dropped {
			if n > 0 {
				fmt.Fprintf(&b, "dropped %v=%d\n", DropReason(why), n)
			}
		}
	}
	return strings.TrimSpace(b.String())
}

func (s *script) showRecord(b *strings.Builder, h *HistoryRecord, m *Delivery) {
	fmt.Fprintf(b, "%d: seq=%d id=%q session=%q enqueued=%d at=%d by %v", h.Order, h.Number, h.MessageID,
		h.SessionID, h.EnqueuedAt-startWall, h.At-startWall, h.By)
	if h.Deliveries > 0 {
		fmt.Fprintf(b, " deliveries=%d", h.Deliveries)
	}
	if h.End != StillThere {
		b.WriteString(" " + []string{"", "completed", "dead-lettered", "expired", "cancelled", "deleted", "forwarded", "released"}[h.End])
	}
	if h.EndedAt != 0 {
		fmt.Fprintf(b, " ended=%d", h.EndedAt-startWall)
	}
	if h.Operator != "" {
		fmt.Fprintf(b, " operator=%q", h.Operator)
	}
	if m.Ref.Length > 0 {
		b.WriteString(" body " + s.body(m.Ref))
	}
	b.WriteString("\n")
}
