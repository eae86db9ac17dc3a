package fsm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
)

// populated returns a driver whose state has something of everything.
func populated(t testing.TB) *driver {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(0, Main, queue(8, withSessions))
	d.ok(0, Main, queue(9))
	history := func(d *Descriptor) {
		d.ProcessedHistory, d.ProcessedHistoryBody, d.AcceptedHistory = true, true, true
	}
	for id := EntityID(11); id < 13; id++ {
		d.ok(0, Main, queue(id, history))
		d.ok(id, Main, identified("kept", "scheduled", "left"))
		d.ok(id, Main, settle(d.ok(id, Main, &Lock{Max: 1}).Locked[0].Token, Complete))
	}
	d.ok(12, Main, &DropEntity{})
	d.ok(0, Main, queue(10, func(d *Descriptor) { d.DetectDuplicates = true }))
	d.ok(10, Main, &Enqueue{Messages: []Message{{MessageID: "x"}, {MessageID: "y"}, {MessageID: "x"}}})
	d.ok(10, Main, &DeleteMessages{Max: 1})
	d.ok(7, Main, messages(20))
	got := d.ok(7, Main, &Lock{Max: 5}).Locked
	d.ok(7, Main, &Settle{Items: []SettleItem{
		{Token: got[0].Token, Verdict: Abandon, Properties: []Property{{Key: "k", Value: []byte{1}}}},
		{Token: got[1].Token, Verdict: Kill, Reason: "r", Description: "d"},
		{Token: got[2].Token, Verdict: Defer},
	}})
	d.ok(7, DeadLetter, &Lock{Max: 1})
	d.ok(7, Main, &Enqueue{Messages: []Message{{ScheduledAt: d.wall + 9000, TTL: 5, Body: []byte("s")}}})
	for _, id := range []string{"a", "b", "", "a"} {
		d.ok(8, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: id, Body: []byte(id)}}})
	}
	p := d.ok(8, Main, &AcceptSession{Next: true}).Session
	d.ok(8, Main, &Lock{Max: 1, Session: p})
	d.ok(8, Main, &SetSessionState{Session: p, State: []byte("state")})
	d.apply(Request{ID: RequestID{5, 6, 7}, Entity: 7, Command: &Lock{Max: 2, Delete: true}},
		Request{ID: RequestID{5, 7, 7}, Entity: 7, Command: &Lock{Max: 2}},
		Request{ID: RequestID{5, 8, 1}, Entity: 99, Command: &Lock{Max: 2}})
	p = d.ok(8, Main, &AcceptSession{ID: "x"}).Session
	for _, ttl := range []Millis{0, 0, 0, 0, 0, 10, 0, 0} {
		d.ok(8, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "x", TTL: ttl}}})
	}
	got = d.ok(8, Main, &Lock{Max: 5, Session: p}).Locked
	for _, m := range got[:4] {
		c := settle(m.Token, Return)
		c.Session = p
		d.ok(8, Main, c)
	}
	d.wall += 10
	d.s.maxDue = 1 // from here on a session that expires in part, with one spared
	d.apply(Request{Command: &Tick{Listeners: []EntityID{8}}})
	c := settle(got[4].Token, Return)
	c.Session = p
	d.ok(8, Main, c)
	if d.s.write(8).spared.Len() != 1 {
		t.Fatal("nothing is spared")
	}
	d.ok(0, Main, queue(13))
	d.ok(13, Main, messages(1))
	c = settle(d.ok(13, Main, &Lock{Max: 1}).Locked[0].Token, Abandon)
	c.Items[0].Delay = 60_000
	d.ok(13, Main, c)
	d.ok(0, Main, queue(14, withSessions))
	d.ok(14, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "p"}}})
	p = d.ok(14, Main, &AcceptSession{ID: "p"}).Session
	c = settle(d.ok(14, Main, &Lock{Max: 1, Session: p}).Locked[0].Token, Abandon)
	c.Session, c.Items[0].Delay = p, 60_000
	d.ok(14, Main, c)
	topical(d)
	d.ok(9, Main, messages(3))
	d.ok(9, Main, &Lock{Max: 1})
	d.ok(9, Main, &DropEntity{})
	d.apply(Request{Command: &NodeLost{Node: 77}})
	d.s.maxDue = maxDuePerTick
	d.ok(0, Main, queue(15, withSessions))
	d.ok(15, Main, one(Message{HasSession: true, SessionID: "s", Body: []byte("head"), Rest: d.upload(15, 1, 10, 20)}))
	p = d.ok(15, Main, &AcceptSession{ID: "s"}).Session
	d.ok(15, Main, &SetSessionState{Session: p, Rest: d.upload(15, 2, 30, 40)})
	d.upload(15, 3, 50)
	d.ok(0, Main, queue(16, withSessions))
	d.ok(16, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "s"}, {HasSession: true, SessionID: "t"}}})
	o := d.ok(16, Main, &AcceptSession{ID: "s", Shared: true}) // taken over, and its former receiver has not left
	d.ok(16, Main, &Lock{Max: 1, Session: o.Session})
	d.ok(16, Main, &AcceptSession{ID: "s", Shared: true, Presented: o.Shared})
	d.ok(16, Main, &AcceptSession{ID: "t", Shared: true})
	d.ok(7, Main, &Transfer{To: 99, Messages: []Message{{ScheduledAt: d.wall + 9000, Reserved: 4, Body: []byte("t")}}})
	d.ok(0, Main, queue(17, withSessions))
	d.ok(17, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "s"}}})
	d.ok(17, Main, &AcceptSession{ID: "s"})
	d.ok(17, Main, &Revoke{HasSession: true, Session: "s", Operator: "root"})
	if err := d.s.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	return d
}

func imageOf(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := s.Capture().WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("write image: %d of %d bytes, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// S-282: restoring an image and going on equals having applied the whole log. T-251
func TestARestoredStateIsTheStateThatWasCaptured(t *testing.T) {
	d := populated(t)
	img := imageOf(t, d.s)
	r := bytes.NewReader(append(bytes.Clone(img), "what follows"...))
	s := New(1)
	if err := s.Restore(r); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "what follows" {
		t.Errorf("left to read: %q", rest)
	}
	if s.Digest() != d.s.Digest() {
		t.Error("digests differ")
	}
	if again := imageOf(t, s); !bytes.Equal(again, img) {
		t.Error("the image of the restored state is another one")
	}
	if err := s.CheckInvariants(); err != nil {
		t.Error(err)
	}
	for range 20 {
		d.after(1000)
		e := d.entry(Request{Command: &Tick{}},
			Request{Entity: 7, Command: &Lock{Max: 2}},
			Request{Entity: 8, Command: &AcceptSession{Next: true}},
			Request{ID: RequestID{5, 6, 7}, Entity: 7, Command: &Lock{Max: 2, Delete: true}})
		d.index++
		a, b := d.s.Apply(d.index, e), s.Apply(d.index, e)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("results differ:\n%v\n%v", a, b)
		}
		if s.Digest() != d.s.Digest() {
			t.Fatal("digests differ")
		}
	}
}

// An image ends with its first empty frame, also when its last record fills the one before: what stands
// behind it would be taken for the bodies.
func TestAnImageEndsOnceWhateverItsLength(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, messages(1500))
	filled := 0
	for range 4000 {
		d.ok(7, Main, messages(1))
		var out bytes.Buffer
		if _, err := d.s.Capture().WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		left := out.Bytes()[len(imageMagic)+1:]
		var last uint32
		for n := binary.LittleEndian.Uint32(left); n > 0; n = binary.LittleEndian.Uint32(left) {
			last, left = n, left[4+n+4:]
		}
		if len(left) != 8 {
			t.Fatalf("an image of %d bytes has %d behind its end", out.Len(), len(left)-8)
		}
		if last >= frameBytes {
			filled++
			if err := New(d.s.id).Restore(bytes.NewReader(out.Bytes())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if filled == 0 {
		t.Error("no image's last frame was full")
	}
}

func TestDigestTellsStatesApart(t *testing.T) {
	d := populated(t)
	before := d.s.Digest()
	d.apply(Request{Command: &Barrier{}})
	if d.s.Digest() != before { // T-225
		t.Error("a barrier changes the digest")
	}
	d.ok(7, Main, &Lock{Max: 1})
	if d.s.Digest() == before {
		t.Error("a lock does not change the digest")
	}
}

// An image is written while Apply goes on, and is that of its moment all the same. Run with -race.
func TestCaptureIsWrittenWhileApplyGoesOn(t *testing.T) {
	d := populated(t)
	d.ok(7, Main, messages(5000))
	var wg sync.WaitGroup
	for range 8 {
		want := d.s.Digest()
		img := d.s.Capture()
		var b bytes.Buffer
		var err error
		wg.Go(func() { _, err = img.WriteTo(&b) })
		for range 50 {
			d.after(100)
			d.ok(7, Main, messages(3))
			for _, m := range d.ok(7, Main, &Lock{Max: 9}).Locked[:4] {
				d.ok(7, Main, settle(m.Token, Complete))
			}
			d.do(8, Main, &AcceptSession{Next: true})
			d.ok(8, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "b"}}})
			d.apply(Request{Command: &Tick{}})
		}
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		s := New(1)
		if err := s.Restore(&b); err != nil {
			t.Fatal(err)
		}
		if s.Digest() != want {
			t.Fatal("the image is not that of the moment of its capture")
		}
	}
}

func TestATruncatedOrAlteredImageIsAnError(t *testing.T) {
	d := populated(t)
	img := imageOf(t, d.s)
	s := populated(t).s
	before := s.Digest()
	check := func(b []byte, what string) {
		t.Helper()
		if err := s.Restore(bytes.NewReader(b)); !errors.Is(err, ErrFormat) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range img {
		check(img[:i], fmt.Sprintf("truncated to %d", i))
		bad := bytes.Clone(img)
		bad[i] ^= 0x41
		check(bad, fmt.Sprintf("byte %d altered", i))
	}
	if s.Digest() != before {
		t.Error("a refused image changed the state")
	}
	if err := New(2).Restore(bytes.NewReader(img)); !errors.Is(err, ErrFormat) {
		t.Errorf("image of another partition: %v", err)
	}
}

const headerBytes = len(imageMagic) + 1

// reseal gives every frame of an altered image the checksum it should have.
func reseal(img []byte) []byte {
	sum := crc32.Update(0, castagnoli, img[:headerBytes])
	for p := headerBytes; p+8 <= len(img); {
		n := 4 + int(binary.LittleEndian.Uint32(img[p:]))
		if p+n+4 > len(img) {
			break
		}
		sum = crc32.Update(sum, castagnoli, img[p:p+n])
		binary.LittleEndian.PutUint32(img[p+n:], sum)
		sum = crc32.Update(sum, castagnoli, img[p+n:p+n+4])
		p += n + 4
	}
	return img
}

// exercise drives a state that came from a hostile image; it must not panic.
func exercise(s *State) {
	wall, lease := s.Clocks()
	e := &Entry{Wall: wall, Lease: lease, Requests: []Request{{Command: &BecomeLeader{}}}}
	for id := EntityID(7); id < 10; id++ {
		e.Requests = append(e.Requests,
			Request{Entity: id, Command: messages(2)},
			Request{Entity: id, Command: &Lock{Max: 100}},
			Request{Entity: id, Sub: DeadLetter, Command: &Lock{Max: 100}},
			Request{Entity: id, Command: &AcceptSession{Next: true}})
	}
	if s.index == 1<<64-1 {
		return
	}
	s.Apply(s.index+1, e)
	for range 5 {
		if s.index == 1<<64-1 {
			return
		}
		e = &Entry{Wall: wall + 1e6, Lease: lease + 1e6, Epoch: s.epoch,
			Requests: []Request{{Command: &Tick{}}, {Command: &NodeLost{Node: 5}}}}
		s.Apply(s.index+1, e)
	}
	s.Query(QueryRequest{Entity: 7, Query: &Peek{Max: 10}})
}

// Checksums find accidents; a faulty peer can compute them too.
func TestAHostileImageIsAnErrorOrASoundState(t *testing.T) {
	img := imageOf(t, populated(t).s)
	for i := headerBytes; i < len(img); i++ {
		for _, flip := range []byte{1, 2, 4, 0x80, 0xff} {
			bad := bytes.Clone(img)
			bad[i] ^= flip
			s := New(1)
			if err := s.Restore(bytes.NewReader(reseal(bad))); err != nil {
				if !errors.Is(err, ErrFormat) {
					t.Fatalf("byte %d: %v", i, err)
				}
				continue
			}
			if err := s.CheckInvariants(); err != nil {
				t.Fatalf("byte %d ^ %x: %v", i, flip, err)
			}
			exercise(s)
		}
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(imageOf(f, populated(f).s))
	f.Add(imageOf(f, New(1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headerBytes {
			b = reseal(b)
		}
		s := New(1)
		if err := s.Restore(bytes.NewReader(b)); err != nil {
			return
		}
		if err := s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
		exercise(s)
	})
}

// T-250 // S-281: the same log gives the same bytes on every machine, and an image written by this
// version stays readable. Rewrite with -update only together with a new version in the header.
func TestImageHasItsGoldenBytes(t *testing.T) {
	held := populated(t)
	held.ok(0, Main, queue(90))
	held.ok(90, Main, &Restore{Step: RestoreBegin, Counters: ShareCounters{Arrival: 300}})
	held.ok(0, Main, &HoldForwards{Hold: 77, For: 5000})
	moved := populated(t)
	withMoves(t, moved)
	for version, s := range map[byte]*State{imageVersion8: populated(t).s, imageVersion9: held.s, imageVersion: moved.s} {
		img := imageOf(t, s)
		if img[len(imageMagic)] != version {
			t.Errorf("the image has version %d, want %d", img[len(imageMagic)], version)
		}
		file := fmt.Sprintf("testdata/image.v%d.hex", version)
		if *update {
			if err := os.WriteFile(file, []byte(hex.Dump(img)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.Dump(img); got != string(golden) {
			t.Errorf("the image is now\n%s", got)
		}
	}
}

// Images of older versions stay readable, and what they say is the same.
func TestImagesOfOlderVersionsAreRead(t *testing.T) {
	for version := 1; version < imageVersion; version++ {
		text, err := os.ReadFile(fmt.Sprintf("testdata/image.v%d.hex", version))
		if err != nil {
			t.Fatal(err)
		}
		var img []byte
		for line := range strings.Lines(string(text)) {
			b, err := hex.DecodeString(strings.ReplaceAll(line[10:min(len(line), 58)], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			img = append(img, b...)
		}
		s := New(1)
		if err := s.Restore(bytes.NewReader(img)); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if err := s.CheckInvariants(); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if got := s.Query(QueryRequest{Entity: 7, Query: &Counts{}}).Counts; got.Active != 17 ||
			got.DeadLetter != 1 || got.Locked != 4 || got.Deferred != 1 || got.Scheduled != 1 {
			t.Errorf("version %d: %+v", version, got)
		}
	}
}

// A writer that fails is told of, whenever it happens.
func TestAnImageThatCannotBeWrittenIsAnError(t *testing.T) {
	d := populated(t)
	d.ok(7, Main, messages(5000))
	whole := len(imageOf(t, d.s))
	for n := 0; n < whole; n += 1 + whole/50 {
		left := n
		_, err := d.s.Capture().WriteTo(writerFunc(func(b []byte) (int, error) {
			if left -= len(b); left < 0 {
				return 0, io.ErrShortWrite
			}
			return len(b), nil
		}))
		if !errors.Is(err, io.ErrShortWrite) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
