package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/busbar-mq/busbar/fsm/rule"
)

func goldenToken(n byte) LockToken {
	t := LockToken{0, 3}
	for i := 2; i < len(t); i++ {
		t[i] = n
	}
	return t
}

func goldenDescriptor() Descriptor {
	return Descriptor{ID: 12, Version: 34, Kind: Queue, Name: "Orders", Parent: 3,
		Partitions: []PartitionID{1, 2}, Prefixes: []PartitionID{5, 3}, Partitioned: true, Status: SendDisabled, RequiresSession: true,
		LockDuration: 60000, MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30,
		DefaultTTL: Unlimited, DeadLetterOnExpiration: true, NoDeadLetter: true, DetectDuplicates: true,
		DuplicateWindow: 600000, AutoDeleteOnIdle: Unlimited, ForwardTo: "a", ForwardDeadLettersTo: "b",
		UserMetadata: "meta", DeadLetterOnFilterError: true, EnableBatched: true, EnableExpress: true,
		SupportOrdering: true, FilterBeforePublish: true, PartitionSubscriptions: true,
		ProcessedHistory: true, ProcessedHistoryBody: true, AcceptedHistory: true, HistoryCount: 5,
		HistoryAge: 6, HistoryMaxBytes: 7,
		RetryBackoff:     RetryBackoff{Min: 1, Max: 2, Multiplier: 3, Jitter: 4},
		MaxSizeMegabytes: 1024, MaxMessageKilobytes: 256,
		Rules: []Rule{{Name: DefaultRuleName, Source: rule.Default(), CreatedAt: 1}, {Name: "cheap", Source: rule.Source{
			Kind: rule.SQLFilter, Expression: "price < @p", Parameters: []rule.Property{{Name: "@p", Value: rule.OfInt(5)}},
			Action: "SET cheap = 1"}}},
		AuthRules: []AuthRule{{Name: "app", PrimaryKey: "p", SecondaryKey: "q", Send: true, Listen: true, Manage: true,
			CreatedAt: 1, ModifiedAt: 2}},
		CreatedAt: 1700000000000, UpdatedAt: 1700000000001}
}

func goldenEntry(c Command) *Entry {
	e := &Entry{Wall: 1700000000000, Lease: 42, Epoch: 7,
		Requests: []Request{{ID: RequestID{Node: 0xabc, Pump: 5, Counter: 6}, Entity: 12,
			Sub: DeadLetter, Command: c}}}
	for i := range e.Seed {
		e.Seed[i] = byte(i)
	}
	return e
}

// offsets forgets where bodies begin, which only decoding knows.
func offsets(e *Entry) {
	for i := range e.Requests {
		if part, ok := e.Requests[i].Command.(*BodyPart); ok {
			part.BodyOffset = 0
		}
		EachMessage(e.Requests[i].Command, func(m *Message) { m.BodyOffset = 0 })
	}
}

func TestEveryCommandHasItsGoldenBytes(t *testing.T) {
	for name, c := range goldenCommands() {
		t.Run(name, func(t *testing.T) {
			want := goldenEntry(c)
			got := AppendEntry(nil, want)
			version := map[string]int{"put_entity": descriptorVersion}[name]
			path := filepath.Join("testdata", "codec", fmt.Sprintf("%s.v%d.hex", name, max(1, version)))
			if *update {
				if err := os.WriteFile(path, []byte(annotated(t, got)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, golden := goldenBytes(t, path)
			if !bytes.Equal(got, golden) {
				t.Errorf("encoding changed:\n got %x\nwant %x", got, golden)
			}
			back, err := DecodeEntry(golden)
			if err != nil {
				t.Fatal(err)
			}
			offsets(back)
			if !reflect.DeepEqual(back, want) {
				t.Errorf("decoding changed:\n got %+v\nwant %+v", back, want)
			}
		})
	}
}

// A descriptor of an older version, in a log or an image, means what it meant.
func TestOlderVersionsOfADescriptorAreRead(t *testing.T) {
	for version := 1; version < descriptorVersion; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) { readOldDescriptor(t, version) })
	}
}

func readOldDescriptor(t *testing.T, version int) {
	_, golden := goldenBytes(t, fmt.Sprintf("testdata/codec/put_entity.v%d.hex", version))
	e, err := DecodeEntry(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := goldenDescriptor()
	want.Prefixes = nil
	if version < descriptorVersion3 {
		want.Rules = nil
	}
	if version == 1 {
		want.ProcessedHistory, want.ProcessedHistoryBody, want.AcceptedHistory = false, false, false
		want.HistoryCount, want.HistoryAge, want.HistoryMaxBytes = 0, 0, 0
		want.RetryBackoff = RetryBackoff{}
	}
	if got := e.Requests[0].Command.(*PutEntity).Descriptor; !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

// S-365: an older program reads the description of an entity that was not restored.
func TestDescriptorsWithoutPrefixesAreOfVersion3(t *testing.T) {
	d := goldenDescriptor()
	d.Prefixes = nil
	_, golden := goldenBytes(t, "testdata/codec/put_entity.v3.hex")
	if got := AppendDescriptor(nil, &d); got[0] != descriptorVersion3 || !bytes.HasSuffix(golden, got) {
		t.Errorf("%x", got)
	}
}

func TestBodyOffsetPointsAtTheBodyInTheEntry(t *testing.T) {
	b := AppendEntry(nil, goldenEntry(goldenCommands()["enqueue"]))
	e, err := DecodeEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range e.Requests[0].Command.(*Enqueue).Messages {
		if got := b[m.BodyOffset:][:len(m.Body)]; !bytes.Equal(got, m.Body) {
			t.Errorf("bytes at the offset are %q, want %q", got, m.Body)
		}
	}
}

func goldenOutcome() Outcome {
	return Outcome{Refusal: QuotaExceeded, Detail: "12 of 10", Repeated: true, Duplicate: []bool{true, false},
		Numbers: []SequenceNumber{1, 2}, EnqueuedAt: 99, Locked: []Delivery{goldenDelivery()},
		Refusals: []Refusal{None, MessageLockLost}, LockedUntil: 100, Shared: goldenToken(7),
		Session: SessionProof{ID: "s", Token: goldenToken(2)}, Data: []byte("{}"), Count: 7, Next: 8,
		Ops:   []Outcome{{Refusal: MessageLockLost}, {Numbers: []SequenceNumber{4}, Count: 1}},
		Moves: []Move{goldenMove()}}
}

func goldenMove() Move { return Move{Number: 1, To: 2, Hops: 3, TTL: 4} }

func goldenDelivery() Delivery {
	return Delivery{Seq: 1, EnqueuedSeq: 2, Token: goldenToken(3), LockedUntil: 4, EnqueuedAt: 5, ExpiresAt: 6,
		ScheduledAt: 7, Attempts: 8, State: StateDeferred, Reason: "r", Description: "d", Source: "q",
		Properties: []Property{{Key: "k", Value: []byte{1}}}, Ref: BodyRef{Index: 9, Offset: 10, Length: 11},
		Rest:   []BodyRef{{Index: 7, Offset: 8, Length: 9}, {Index: 8, Offset: 9, Length: 1}},
		System: []SystemValue{{Property: rule.Label, Value: []byte{0x40}}}, Body: []byte("body")}
}

func TestWireFormsComeBackAsTheyWere(t *testing.T) {
	o := goldenOutcome()
	got, err := DecodeOutcome(AppendOutcome(nil, &o, true))
	if err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("outcome: %v\n got %+v\nwant %+v", err, got, o)
	}
	got, err = DecodeOutcome(AppendOutcome(nil, &o, false))
	o.Locked[0].Body = nil
	if err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("outcome without bodies: %v\n got %+v\nwant %+v", err, got, o)
	}
	a := Answer{Refusal: SessionLockLost, Detail: "x", Messages: []Delivery{goldenDelivery()},
		State: []byte{}, HasState: true, Parts: []BodyRef{{Index: 1, Offset: 2, Length: 3}}, Sessions: []string{"", "b"}, Data: []byte("1"),
		Counts: EntityCounts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, Drops{DropMaxDelivery: 11, DropWithEntity: 1 << 40}}, IdleFor: 5, Next: 6,
		History: []HistoryRecord{{Order: 1, Number: 2, MessageID: "m", SessionID: "s", EnqueuedAt: 3, At: 4,
			Deliveries: 5, By: RequestID{6, 7, 8}, End: Released, EndedAt: 9, Ref: BodyRef{10, 11, 12}, Operator: "o"}},
		Locks: []LockInfo{{Number: 1, Digits: [4]byte{2}, TakenAt: 3, LockedUntil: 4, State: StateDeferred,
			HasSession: true, SessionID: "s", Shared: true, By: RequestID{5, 6, 7}}}, Moves: []Move{goldenMove()}}
	check := func(v any) {
		s := reflect.ValueOf(v)
		for i := range s.NumField() {
			if s.Field(i).IsZero() {
				t.Errorf("%s.%s is zero", s.Type(), s.Type().Field(i).Name)
			}
		}
	}
	check(a)
	check(a.History[0])
	check(a.Locks[0])
	back, err := DecodeAnswer(AppendAnswer(nil, &a))
	if err != nil || !reflect.DeepEqual(back, a) {
		t.Errorf("answer: %v\n got %+v\nwant %+v", err, back, a)
	}
	for _, q := range []Query{
		&Peek{From: 1, Max: 2, MaxBytes: 3, HasSession: true, Session: "s"},
		&GetSessionState{Session: SessionProof{ID: "s", Token: goldenToken(1)}},
		&Counts{},
		&ListSessions{After: "a", HasAfter: true, Max: 100, UpdatedAfter: -1},
		&Ask{Data: []byte("q")},
		&Browse{From: 1, After: 2, Max: 3, MaxBytes: 4, States: 5, HasSession: true, Session: "s"},
		&Moving{After: 1, Max: 2, MaxBytes: 3},
		&ReadBody{Refs: []BodyRef{{Index: 1, Offset: 2, Length: 3}}},
		&Idle{}, &ListLocks{After: 1, Max: 2}, &History{Kind: Accepted, After: 1, Max: 2, MaxBytes: 3},
	} {
		want := QueryRequest{Entity: 4, Sub: DeadLetter, Query: q}
		got, err := DecodeQuery(AppendQuery(nil, &want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("query: %v\n got %+v\nwant %+v", err, got, want)
		}
	}
	d := goldenDescriptor()
	dd, err := DecodeDescriptor(AppendDescriptor(nil, &d))
	if err != nil || !reflect.DeepEqual(dd, d) {
		t.Errorf("descriptor: %v\n got %+v\nwant %+v", err, dd, d)
	}
	r := goldenEntry(goldenCommands()["settle"]).Requests[0]
	rr, err := DecodeRequest(AppendRequest(nil, &r))
	if err != nil || !reflect.DeepEqual(rr, r) {
		t.Errorf("request: %v\n got %+v\nwant %+v", err, rr, r)
	}
}

// S-256: a share works by the status and does not ask whose it is: its description is as it was before
// there were suspensions.
func TestSharesDoNotLearnWhoseAStatusIs(t *testing.T) {
	d := goldenDescriptor()
	without := AppendDescriptor(nil, &d)
	d.Suspended, d.UserStatus = true, ReceiveDisabled
	if with := AppendDescriptor(nil, &d); !bytes.Equal(with, without) {
		t.Errorf("\n got %x\nwant %x", with, without)
	}
}

// E6: what clients read back as they sent it, and what decides nothing, is the catalog's own.
func TestSharesDoNotLearnWhatIsOnlyShown(t *testing.T) {
	d := goldenDescriptor()
	without := AppendDescriptor(nil, &d)
	d.AuthRules[0].Order = OrderOfRights([]string{"Send", "Listen", "Manage"})
	d.Rules[0].Preprocessing = [2]string{"true", "false"}
	d.AsSent = AsSent{AnonymousAccess: true, Lock: 1, TTL: 2, Window: 3, Idle: 4}
	d.Origins = []PartitionID{4, 5}
	if with := AppendDescriptor(nil, &d); !bytes.Equal(with, without) {
		t.Errorf("\n got %x\nwant %x", with, without)
	}
}

// A new field of a word that the codec forgets would be lost on the way: every field must be set in
// the goldens above.
func TestGoldensSetEveryField(t *testing.T) {
	left := map[string]bool{
		"BodyOffset":    true, // set by decoding
		"Rest":          true, // variants of the command; see large and large_state
		"Suspended":     true, // the catalog's own, see TestSharesDoNotLearnWhoseAStatusIs
		"UserStatus":    true,
		"AsSent":        true, // likewise, as the next two, see TestSharesDoNotLearnWhatIsOnlyShown
		"Order":         true,
		"Operator":      true, // a variant of the command, see revoke_by
		"Reserved":      true, // a variant, see enqueue_reserved and transfer_reserved
		"Preprocessing": true, // see TestSharesDoNotLearnWhatIsOnlyShown
		"Origins":       true, // likewise
		"Late":          true, // taken in before the command is encoded
	}
	check := func(v any) {
		s := reflect.ValueOf(v)
		for i := range s.NumField() {
			if s.Field(i).IsZero() && !left[s.Type().Field(i).Name] {
				t.Errorf("%s.%s is zero in the golden", s.Type(), s.Type().Field(i).Name)
			}
		}
	}
	check(goldenDescriptor())
	check(goldenDescriptor().AuthRules[0])
	if len(goldenDelivery().Rest) == 0 {
		t.Error("fsm.Delivery.Rest is zero in the golden")
	}
	check(goldenDelivery())
	check(goldenOutcome())
	check(goldenCommands()["settle"].(*Settle).Items[1])
	moved := goldenCommands()["enqueue_moved"].(*Enqueue)
	check(moved.Messages[0])
	check(*moved.Messages[0].Carried)
	check(*moved.Origin)
	check(goldenMove())
	check(goldenCommands()["forward"].(*Forward).Done[1])
	to := *goldenCommands()["redrive_to"].(*Redrive)
	to.Discard = goldenCommands()["discard"].(*Redrive).Discard // no command has all three
	to.Numbers = goldenCommands()["chosen"].(*Redrive).Numbers
	check(to)
	page := *goldenCommands()["restore"].(*Restore)
	page.Counters = goldenCommands()["restore_begin"].(*Restore).Counters // no step has both
	check(page)
	check(page.Counters)
	check(page.Uses[0][0].Message)
	check(page.IDs[0])
	check(page.Origins[0])
	state := page.Sessions[0]
	state.Parts = page.Sessions[1].Parts // no state is whole and in parts
	check(state)
	move := *goldenCommands()["rehome_bodies"].(*Rehome) // no step has all
	move.At, move.Image = 500, goldenCommands()["rehome_image"].(*Rehome).Image
	move.Size, move.Sum = 500, goldenCommands()["rehome_seal"].(*Rehome).Sum
	check(move)
	older := map[string]bool{"rehome_close": true, "rehome_bodies": true, "rehome_image": true, "rehome_seal": true, "restore": true, "restore_begin": true, "restore_end": true, "put_entity": true, "enqueue": true, "enqueue_keyed": true, "redrive": true,
		"redrive_to": true, "discard": true, "chosen": true, "large": true, "large_transfer": true, "large_state": true,
		"accept_session": true, "release_session": true,
		"enqueue_reserved": true, "transfer_reserved": true}
	for name, c := range goldenCommands() {
		if !older[name] { // or checked above
			check(reflect.ValueOf(c).Elem().Interface())
		}
	}
}

func TestTruncatedAndAlteredBytesAreErrors(t *testing.T) {
	for name, c := range goldenCommands() {
		b := AppendEntry(nil, goldenEntry(c))
		for n := range b {
			if _, err := DecodeEntry(b[:n]); !errors.Is(err, ErrFormat) {
				t.Fatalf("%s cut to %d bytes: error %v, want ErrFormat", name, n, err)
			}
		}
		if _, err := DecodeEntry(append(bytes.Clone(b), 0)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s with a byte too many: %v", name, err)
		}
		for _, at := range []int{0, 1} {
			x := bytes.Clone(b)
			x[at]++
			if _, err := DecodeEntry(x); !errors.Is(err, ErrFormat) {
				t.Errorf("%s with byte %d changed: %v", name, at, err)
			}
		}
	}
}

func TestCountsLargerThanTheInputAllocateNothing(t *testing.T) {
	e := goldenEntry(&Barrier{})
	e.Requests = nil
	b := AppendEntry(nil, e)
	b = append(b[:len(b)-1], 0xff, 0xff, 0xff, 0xff, 0x7f) // 34 thousand million requests
	if n := testing.AllocsPerRun(10, func() { _, _ = DecodeEntry(b) }); n > 16 {
		t.Errorf("%v allocations for a count of 2^35", n)
	}
	if _, err := DecodeEntry(b); !errors.Is(err, ErrFormat) {
		t.Errorf("error %v, want ErrFormat", err)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range goldenCommands() {
		f.Add(AppendEntry(nil, goldenEntry(c)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := DecodeEntry(AppendEntry(nil, e))
		if err != nil {
			t.Fatalf("what was decoded does not encode: %v", err)
		}
		offsets(e)
		offsets(again)
		if !reflect.DeepEqual(e, again) {
			t.Fatalf("not stable:\n%+v\n%+v", e, again)
		}
	})
}

func FuzzDecodeWire(f *testing.F) {
	o := goldenOutcome()
	f.Add(AppendOutcome(nil, &o, true))
	f.Add(AppendQuery(nil, &QueryRequest{Query: &Counts{}}))
	f.Add(AppendAnswer(nil, &Answer{Sessions: []string{"a"}}))
	r := goldenEntry(&Barrier{}).Requests[0]
	f.Add(AppendRequest(nil, &r))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = DecodeOutcome(b)
		_, _ = DecodeQuery(b)
		_, _ = DecodeAnswer(b)
		_, _ = DecodeRequest(b)
		_, _ = DecodeDescriptor(b)
	})
}

func BenchmarkEntryCodec(b *testing.B) {
	m := make([]Message, 64)
	for i := range m {
		m[i].Body = make([]byte, 1024)
	}
	e := goldenEntry(&Enqueue{Messages: m})
	buf := AppendEntry(nil, e)
	b.Run("encode 64 x 1 KiB", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendEntry(buf[:0], e)
		}
	})
	b.Run("decode 64 x 1 KiB", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeEntry(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
