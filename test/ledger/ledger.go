package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Message names one message: its producer's series (in a session queue the session) and its number
// there. Its body is its name.
type Message struct {
	Queue  string
	Series string
	Number int
}

// Body is the body by which a consumer knows the message.
func (m Message) Body() []byte { return fmt.Appendf(nil, "%s %d", m.Series, m.Number) }

// Parse is the reverse of Body.
func Parse(queue string, body []byte) (Message, error) {
	m := Message{Queue: queue}
	_, err := fmt.Sscanf(string(body), "%s %d", &m.Series, &m.Number)
	return m, err
}

// Fate is what the producer knows about a message.
type Fate int

const (
	Unknown      Fate = iota // the node died before it answered
	Acknowledged             // the broker promised to keep it
)

// Ledger is what the clients saw. All methods may be called at once.
type Ledger struct {
	mu        sync.Mutex
	sent      map[Message]Fate
	completed map[Message]int
	numbers   map[string]map[int64]Message // by queue: who carries which sequence number
	firsts    map[string][]int             // by queue and series: numbers in the order of first delivery
	seen      map[Message]bool
	faults    []string
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		sent: map[Message]Fate{}, completed: map[Message]int{}, seen: map[Message]bool{},
		numbers: map[string]map[int64]Message{}, firsts: map[string][]int{},
	}
}

// Fault records what must not happen. The load goes on, so that one run shows all of it.
func (l *Ledger) Fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faultLocked(format, args...)
}

func (l *Ledger) faultLocked(format string, args ...any) {
	const most = 50
	if len(l.faults) < most {
		at := time.Now().Format("15:04:05.000 ")
		l.faults = append(l.faults, at+fmt.Sprintf(format, args...))
	}
}

// Submitted is what a producer knows after a send.
func (l *Ledger) Submitted(m Message, f Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[m] = f
}

// Received is called in the order of delivery within a session.
func (l *Ledger) Received(m Message, number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.completed[m] > 0 {
		l.faultLocked("%v came again after its completion was acknowledged, with number %d; it had %v", m, number,
			l.numbersLocked(m))
	}
	if l.numbers[m.Queue] == nil {
		l.numbers[m.Queue] = map[int64]Message{}
	}
	if other, ok := l.numbers[m.Queue][number]; ok && other != m {
		l.faultLocked("%v and %v both carry number %d", m, other, number)
	}
	l.numbers[m.Queue][number] = m
	if !l.seen[m] {
		l.seen[m] = true
		series := m.Queue + " " + m.Series
		l.firsts[series] = append(l.firsts[series], m.Number)
	}
}

// numbersLocked returns the sequence numbers with which a message came. Two mean that it was stored twice.
func (l *Ledger) numbersLocked(m Message) (all []int64) {
	for number, carried := range l.numbers[m.Queue] {
		if carried == m {
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all
}

// Done says that the completion of a message was acknowledged.
func (l *Ledger) Done(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.completed[m]++; l.completed[m] > 1 {
		l.faultLocked("%v was completed %d times", m, l.completed[m])
	}
}

// Missing returns how many acknowledged messages nobody has received yet.
func (l *Ledger) Missing() (n int, example Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, f := range l.sent {
		if f == Acknowledged && !l.seen[m] {
			n, example = n+1, m
		}
	}
	return n, example
}

// Tally returns the counts for the report.
func (l *Ledger) Tally() (sent, inDoubt, completed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.sent {
		if f == Acknowledged {
			sent++
		} else {
			inDoubt++
		}
	}
	return sent, inDoubt, len(l.completed)
}

// Judge returns every fault, with those that only the whole picture shows. Series of ordered queues
// are sessions.
func (l *Ledger) Judge(ordered map[string]bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, f := range l.sent {
		if f == Acknowledged && !l.seen[m] {
			l.faultLocked("%v was acknowledged and never came", m)
		}
	}
	for m := range l.seen {
		if _, ok := l.sent[m]; !ok {
			l.faultLocked("%v came and nobody sent it", m)
		}
	}
	l.orderLocked(ordered)
	l.ascendingLocked()
	for queue, numbers := range l.numbers {
		l.gaplessLocked(queue, slices.Sorted(maps.Keys(numbers)))
	}
	return l.faults
}

// orderLocked checks that each session's messages were first delivered in the order of their sending.
func (l *Ledger) orderLocked(ordered map[string]bool) {
	for series, numbers := range l.firsts {
		queue, session, _ := strings.Cut(series, " ")
		if !ordered[queue] {
			continue
		}
		for i := 1; i < len(numbers); i++ {
			if numbers[i] < numbers[i-1] {
				l.faultLocked("session %s was delivered out of order: %d after %d (in doubt: %t, %t)",
					session, numbers[i], numbers[i-1],
					l.sent[Message{queue, session, numbers[i]}] == Unknown,
					l.sent[Message{queue, session, numbers[i-1]}] == Unknown)
			}
		}
	}
}

// ascendingLocked checks that of two messages of a series the later one has the higher number. Its send began when that of the
// earlier one was acknowledged. Numbers of different shares do not compare.
func (l *Ledger) ascendingLocked() {
	type row struct {
		queue, series string
		share         int64
	}
	for queue, numbers := range l.numbers {
		times, last := map[Message]int{}, map[row]Message{}
		for _, m := range numbers {
			times[m]++
		}
		for _, n := range slices.Sorted(maps.Keys(numbers)) {
			m := numbers[n]
			if times[m] > 1 || l.sent[m] != Acknowledged {
				continue
			}
			k := row{queue, m.Series, n >> 48}
			if before, ok := last[k]; ok && m.Number < before.Number {
				l.faultLocked("%v has number %d, behind %v", m, n, before)
			}
			last[k] = m
		}
	}
}

// gaplessLocked checks that each share's numbers are 1, 2, 3 without a hole. A send in doubt has a
// number exactly if it was stored, and then it was received too.
func (l *Ledger) gaplessLocked(queue string, numbers []int64) {
	last := map[int64]int64{} // by share
	for _, n := range numbers {
		share, low := n>>48, n&(1<<48-1)
		if low != last[share]+1 {
			l.faultLocked("%s: share %d goes from number %d to %d", queue, share, last[share], low)
		}
		last[share] = low
	}
}
