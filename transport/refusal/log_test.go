package refusal

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// book is a log that a test reads.
type book struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (k *book) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.Write(p)
}

func (k *book) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.String()
}

func newBook(level hclog.Level) (*book, *Log) {
	k := &book{}
	return k, New(0x0123456789abcdef, hclog.New(&hclog.LoggerOptions{Level: level, Output: k}), time.Now)
}

// S-1: a client that is refused in a loop does not fill the log; every id is in it all the same, by
// itself or between the first and the last one of a line; and other codes keep their lines.
func TestAFloodIsToldInFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, l := newBook(hclog.Info)
		defer l.Close()
		var ids []string
		for i := range 30_000 { // a thousand a second
			ids = append(ids, l.Note(ServiceBusy, "orders", fmt.Sprint("busy ", i)).ID)
			time.Sleep(time.Millisecond)
		}
		rare := l.Note(Unauthorized, "orders", "no")
		time.Sleep(summaryPause)
		said := k.text()
		if lines := strings.Count(said, "\n"); lines > burst+30+4+1 {
			t.Errorf("%d lines", lines)
		}
		if !strings.Contains(said, rare.ID) {
			t.Error("a refusal of another code has no line")
		}
		ranges := regexp.MustCompile(`code=ServiceBusy count=(\d+) first=(\S+) last=(\S+)`).FindAllStringSubmatch(said, -1)
		omitted := 0
		for _, id := range ids {
			if strings.Contains(said, "tracking_id="+id) {
				continue
			}
			omitted++
			in := false
			for _, r := range ranges {
				in = in || r[2] <= id && id <= r[3]
			}
			if !in {
				t.Fatalf("%s is nowhere", id)
			}
		}
		told := 0
		for _, r := range ranges {
			var n int
			_, _ = fmt.Sscan(r[1], &n)
			told += n
		}
		if told != omitted || omitted == 0 {
			t.Errorf("%d without a line, %d told of", omitted, told)
		}
		l.Counts(func(code Code, count uint64) {
			if want := map[Code]uint64{ServiceBusy: 30_000, Unauthorized: 1}[code]; count != want {
				t.Errorf("%d of %s", count, code)
			}
		})
	})
}

// S-1: a client that asks for the same in a loop, as old ones do of an entity that is gone, costs a line a minute,
// and one that tells how many more there were.
func TestTheSameRefusalHasALineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, l := newBook(hclog.Info)
		defer l.Close()
		for range 5 * 60 * 20 {
			l.Note(EntityNotFound, "gone", "The messaging entity 'gone' could not be found.")
			time.Sleep(50 * time.Millisecond)
		}
		l.Note(EntityNotFound, "gone too", "The messaging entity 'gone too' could not be found.")
		said := k.text()
		if n := strings.Count(said, "refused: code=MessagingEntityNotFound entity=gone "); n != repeatBurst+4 {
			t.Errorf("%d lines in five minutes, want %d at once and one a minute", n, repeatBurst)
		}
		if n := strings.Count(said, "more refusals"); n < 4 || n > 5 {
			t.Errorf("%d lines of how many more there were, want one a minute", n)
		}
		if !strings.Contains(said, `entity="gone too"`) {
			t.Error("another entity has no line")
		}
	})
}

// S-1: the lines that are remembered are bounded, and what is not remembered has a line.
func TestLinesThatAreRememberedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newBook(hclog.Info)
		defer l.Close()
		for i := range 3 * maxTold {
			l.Note(EntityNotFound, fmt.Sprint("gone ", i), "gone")
			time.Sleep(linePause)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.told) > maxTold {
			t.Errorf("%d lines are remembered", len(l.told))
		}
	})
}

// S-1: who wants every line sets the level to debug.
func TestAtDebugEveryRefusalHasALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, l := newBook(hclog.Debug)
		for range 10 * burst {
			if id := l.Note(InvalidArgument, "orders", "bad").ID; !strings.Contains(k.text(), id) {
				t.Fatalf("no line of %s", id)
			}
		}
		l.Close()
		if !strings.Contains(k.text(), "more refusals") {
			t.Error("the end told nothing of what had no line at info")
		}
	})
}

// S-1
func TestAMarkIsInTheTextAsTheOriginalWritesIt(t *testing.T) {
	_, l := newBook(hclog.Info)
	defer l.Close()
	m := l.Note(GeneralError, "t/Subscriptions/s\xff"+strings.Repeat("x", 2000), "no")
	m.At = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if len(m.Entity) > maxEntityBytes || strings.ToValidUTF8(m.Entity, "") != m.Entity {
		t.Errorf("entity of %d bytes", len(m.Entity))
	}
	m.Entity = "t/Subscriptions/s"
	const want = " TrackingId:01234567-89ab-cdef-0000-000000000001_G0, SystemTracker:h:t/Subscriptions/s, " +
		"Timestamp:2026-01-02T03:04:05"
	if got := m.Tail("h"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if m.Entity = ""; !strings.Contains(m.Tail("h"), "SystemTracker:h, ") {
		t.Errorf("without an entity: %s", m.Tail("h"))
	}
}

// BenchmarkNote is what a refusal costs that has no line of its own.
func BenchmarkNote(b *testing.B) {
	_, l := newBook(hclog.Info)
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		_ = l.Note(ServiceBusy, "orders", "busy").Tail("localhost")
	}
}
