package failover

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// message names one message: its producer's lane (in a session queue the session) and its number
// there. Its body is its name.
type message struct {
	queue  string
	lane   string
	number int
}

func (m message) body() []byte { return fmt.Appendf(nil, "%s %d", m.lane, m.number) }

func parse(queue string, body []byte) (message, error) {
	m := message{queue: queue}
	_, err := fmt.Sscanf(string(body), "%s %d", &m.lane, &m.number)
	return m, err
}

// fate is what the producer knows about a message.
type fate int

const (
	unknown      fate = iota // the node died before it answered
	acknowledged             // the broker promised to keep it
)

// ledger is what the clients saw. All methods may be called at once.
type ledger struct {
	mu        sync.Mutex
	sent      map[message]fate
	completed map[message]int
	numbers   map[string]map[int64]message // by queue: who carries which sequence number
	firsts    map[string][]int             // by queue and lane: numbers in the order of first delivery
	seen      map[message]bool
	faults    []string
}

func newLedger() *ledger {
	return &ledger{
		sent: map[message]fate{}, completed: map[message]int{}, seen: map[message]bool{},
		numbers: map[string]map[int64]message{}, firsts: map[string][]int{},
	}
}

// fault records what must not happen. The load goes on, so that one run shows all of it.
func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faultLocked(format, args...)
}

func (l *ledger) faultLocked(format string, args ...any) {
	const most = 50
	if len(l.faults) < most {
		at := time.Now().Format("15:04:05.000 ")
		l.faults = append(l.faults, at+fmt.Sprintf(format, args...))
	}
}

func (l *ledger) submitted(m message, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[m] = f
}

// received is called in the order of delivery within a session.
func (l *ledger) received(m message, number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.completed[m] > 0 {
		l.faultLocked("%v came again after its completion was acknowledged", m)
	}
	if l.numbers[m.queue] == nil {
		l.numbers[m.queue] = map[int64]message{}
	}
	if other, ok := l.numbers[m.queue][number]; ok && other != m {
		l.faultLocked("%v and %v both carry number %d", m, other, number)
	}
	l.numbers[m.queue][number] = m
	if !l.seen[m] {
		l.seen[m] = true
		lane := m.queue + " " + m.lane
		l.firsts[lane] = append(l.firsts[lane], m.number)
	}
}

func (l *ledger) done(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.completed[m]++; l.completed[m] > 1 {
		l.faultLocked("%v was completed %d times", m, l.completed[m])
	}
}

// missing returns how many acknowledged messages nobody has received yet.
func (l *ledger) missing() (n int, example message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, f := range l.sent {
		if f == acknowledged && !l.seen[m] {
			n, example = n+1, m
		}
	}
	return n, example
}

// tally returns the counts for the report.
func (l *ledger) tally() (sent, inDoubt, completed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.sent {
		if f == acknowledged {
			sent++
		} else {
			inDoubt++
		}
	}
	return sent, inDoubt, len(l.completed)
}

// judge returns every fault, with those that only the whole picture shows. Lanes of ordered queues
// are sessions.
func (l *ledger) judge(ordered map[string]bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, f := range l.sent {
		if f == acknowledged && !l.seen[m] {
			l.faultLocked("%v was acknowledged and never came", m)
		}
	}
	for m := range l.seen {
		if _, ok := l.sent[m]; !ok {
			l.faultLocked("%v came and nobody sent it", m)
		}
	}
	l.orderLocked(ordered)
	for queue, numbers := range l.numbers {
		l.gaplessLocked(queue, slices.Sorted(maps.Keys(numbers)))
	}
	return l.faults
}

// orderLocked checks that each session's messages were first delivered in the order of their sending.
func (l *ledger) orderLocked(ordered map[string]bool) {
	for lane, numbers := range l.firsts {
		queue, session, _ := strings.Cut(lane, " ")
		if !ordered[queue] {
			continue
		}
		for i := 1; i < len(numbers); i++ {
			if numbers[i] < numbers[i-1] {
				l.faultLocked("session %s was delivered out of order: %d after %d (in doubt: %t, %t)",
					session, numbers[i], numbers[i-1],
					l.sent[message{queue, session, numbers[i]}] == unknown,
					l.sent[message{queue, session, numbers[i-1]}] == unknown)
			}
		}
	}
}

// gaplessLocked checks that each share's numbers are 1, 2, 3 without a hole. A send in doubt has a
// number exactly if it was stored, and then it was received too.
func (l *ledger) gaplessLocked(queue string, numbers []int64) {
	last := map[int64]int64{} // by share
	for _, n := range numbers {
		share, low := n>>48, n&(1<<48-1)
		if low != last[share]+1 {
			l.faultLocked("%s: share %d goes from number %d to %d", queue, share, last[share], low)
		}
		last[share] = low
	}
}
