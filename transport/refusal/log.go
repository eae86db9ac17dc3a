package refusal

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// burst is how many refusals of one code have lines of their own at once, linePause what lies between two lines
	// after that. All codes together write at most 19 lines a second for long, some 6 KB. A client that is refused in
	// a loop costs about 25 MB of log in a day.
	burst     = 50
	linePause = time.Second
	// summaryPause is how soon those without a line are told of together.
	summaryPause = time.Minute
	// repeatBurst is how many refusals of the same code, entity and text have lines at once, repeatPause what lies
	// between two lines after that.
	repeatBurst = 10
	repeatPause = time.Minute
	// maxTold bounds how many lines are remembered for that, some 50 bytes each.
	maxTold = 4096
	// maxTextBytes bounds the text in the log, which may hold a client's words.
	maxTextBytes = 1 << 10
	// maxEntityBytes bounds the path in a refusal; a subscription's is at most 260+15+50 characters.
	maxEntityBytes = 512
)

// Mark is what a refusal carries beside its words.
type Mark struct {
	Code   Code
	ID     string // unique, and in the server's log
	Entity string // path of the entity, "" if it is about none
	At     time.Time
}

// Tail is what ends the text of a refusal, in the original's form (RUL-13). broker is the name by
// which the client knows us.
func (m Mark) Tail(broker string) string {
	var b strings.Builder
	b.WriteString(" TrackingId:")
	b.WriteString(m.ID)
	b.WriteString(", SystemTracker:")
	b.WriteString(broker)
	if m.Entity != "" {
		b.WriteByte(':')
		b.WriteString(m.Entity)
	}
	b.WriteString(", Timestamp:")
	b.WriteString(m.At.Format("2006-01-02T15:04:05"))
	return b.String()
}

// Log notes refusals. It is safe for concurrent use and one of them serves a node.
//
// The first half of an id is the node's, so whoever has one knows in whose log to look. The second half
// counts up, so one line can name many: those from its first to its last id.
type Log struct {
	log  hclog.Logger
	now  func() time.Time
	root uint64 // the first half of every id

	mu     sync.Mutex
	issued uint64 // the second half of the last id
	kinds  [codes]kind
	told   map[uint64]time.Time // when a bucket of lines that tell the same will be full again
	seed   maphash.Seed
	timer  *time.Timer // writes the next summary; nil while nothing is omitted
	closed bool
	wg     sync.WaitGroup // a summary that is due
}

// kind is what is known of the refusals of one code.
type kind struct {
	count       uint64
	full        time.Time // when the bucket of lines will be full again
	omitted     uint64    // without a line since the last summary
	first, last uint64    // of these
}

// New returns a log of refusals. root is a number that no other process has: the node's incarnation,
// which its clients know from the container id. now is the wall clock. [Log.Close] must be called.
func New(root uint64, log hclog.Logger, now func() time.Time) *Log {
	return &Log{root: root, log: log, now: now, told: map[uint64]time.Time{}, seed: maphash.MakeSeed()}
}

// Note counts a refusal, gives it its id and writes it to the log. entity and text may be a client's
// words; details are pairs for the log alone.
func (l *Log) Note(code Code, entity, text string, details ...any) Mark {
	m := Mark{Code: code, Entity: clip(entity, maxEntityBytes), At: l.now().UTC()}
	text = clip(text, maxTextBytes)
	n, own := l.count(code, l.key(code, m.Entity, text), m.At)
	m.ID = l.id(n)
	if own || l.log.IsDebug() {
		level := hclog.Info
		switch {
		case !own:
			level = hclog.Debug
		case code == GeneralError:
			level = hclog.Error // nobody but us is to blame
		}
		l.log.Log(level, "refused", append([]any{"code", code.String(), "entity", m.Entity,
			"tracking_id", m.ID, "text", text}, details...)...)
	}
	return m
}

// key tells refusals that say the same from others.
func (l *Log) key(code Code, entity, text string) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	_ = h.WriteByte(byte(code)) // it never fails
	_, _ = h.WriteString(entity)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(text)
	return h.Sum64()
}

// repeatedLocked reports whether the same was told often enough for now, and notes that it is told once more if not.
func (l *Log) repeatedLocked(key uint64, now time.Time) bool {
	full, known := l.told[key]
	if !known || full.Before(now) {
		full = now
	}
	if full = full.Add(repeatPause); full.Sub(now) > repeatBurst*repeatPause {
		return true
	}
	if !known && len(l.told) >= maxTold {
		for k, at := range l.told {
			if at.Before(now) {
				delete(l.told, k)
			}
		}
		if len(l.told) >= maxTold {
			return false // the pause between lines bounds them all the same
		}
	}
	l.told[key] = full
	return false
}

// count issues a number and says whether it may have a line of its own. It may if the same has not been told for a
// while, and there were few of that code.
func (l *Log) count(code Code, key uint64, now time.Time) (n uint64, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.issued++
	k := &l.kinds[code]
	k.count++
	if k.full.Before(now) {
		k.full = now
	}
	if full := k.full.Add(linePause); full.Sub(now) <= burst*linePause && !l.repeatedLocked(key, now) {
		k.full = full
		return l.issued, true
	}
	if k.omitted++; k.omitted == 1 {
		k.first = l.issued
	}
	k.last = l.issued
	if l.timer == nil && !l.closed {
		l.wg.Add(1)
		l.timer = time.AfterFunc(summaryPause, func() {
			defer l.wg.Done()
			l.summarize()
		})
	}
	return l.issued, false
}

// id writes a number as a GUID, with the tail that the original's ids have.
func (l *Log) id(n uint64) string {
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x_G0", l.root>>32, l.root>>16&0xffff, l.root&0xffff,
		n>>48, n&0xffff_ffff_ffff)
}

// summarize tells of the refusals that have no line of their own.
func (l *Log) summarize() {
	l.mu.Lock()
	kinds := l.kinds
	for i := range l.kinds {
		l.kinds[i].omitted = 0
	}
	l.timer = nil
	l.mu.Unlock()
	for code, k := range kinds {
		if k.omitted > 0 {
			l.log.Info("more refusals, without lines of their own", "code", Code(code).String(),
				"count", k.omitted, "first", l.id(k.first), "last", l.id(k.last))
		}
	}
}

// Counts calls f with every code and how many refusals it had since the start of the process.
func (l *Log) Counts(f func(code Code, count uint64)) {
	l.mu.Lock()
	kinds := l.kinds
	l.mu.Unlock()
	for code, k := range kinds {
		f(Code(code), k.count)
	}
}

// Close writes what is still to be told. Refusals may be noted after it, but nothing sums them up.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	timer := l.timer
	l.mu.Unlock()
	if timer != nil && timer.Stop() { // else it is under way
		l.summarize()
		l.wg.Done()
	}
	l.wg.Wait()
}

// clip bounds text that a client wrote.
func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
