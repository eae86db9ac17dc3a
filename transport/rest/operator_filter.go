package rest

import (
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

const (
	// filterScan bounds the messages that one request looks at for a filter, and filterTime the time.
	filterScan = 20_000
	filterTime = 2 * time.Second
	// filterPage is how many of them are asked for at once.
	filterPage = 500
)

// sift is a filter in the language of rules, for messages that are there.
type sift struct {
	filter *rule.Filter
	failed uint64
	fault  string // of the first message on which the filter fails
}

// sift reads the parameter filter, nil if there is none.
func (q *inspection) sift() (*sift, error) {
	text := q.values.Get("filter")
	if text == "" {
		return nil, nil
	}
	source := rule.Source{Kind: rule.SQLFilter, Expression: text}
	compiled, err := source.Compile()
	if err != nil {
		return nil, badRequest("The filter is not valid: %v.", err)
	}
	return &sift{filter: compiled.Filter}, nil
}

// selects reports whether the filter selects a message. One on which the filter fails is not selected.
func (s *sift) selects(m rule.Message, number fsm.SequenceNumber) bool {
	ok, err := s.filter.Match(m)
	if err != nil {
		if s.failed++; s.fault == "" {
			s.fault = fmt.Sprintf("message %d: %v", number, err)
		}
	}
	return ok && err == nil
}

// sifted goes through messages and hands on those that the filter selects, at most so many. A request that has seen much and
// found little ends, and says where to go on.
func (q *inspection) sifted(at cursor, ask fsm.Browse, s *sift, most uint64, found func(*fsm.Delivery) error) (next string, err error) {
	began := q.o.deps.Now()
	ask.Max = filterPage
	passed := uint64(0)
	for seen := 0; seen < filterScan; {
		a, err := q.query(at.share, &ask)
		if err != nil {
			return "", err
		}
		for i := range a.Messages {
			m := &a.Messages[i]
			seen++
			look, err := q.o.deps.Look(m)
			if err != nil {
				return "", fmt.Errorf("message %d: %w", m.Seq, err)
			}
			if !s.selects(look, m.Seq) {
				continue
			}
			if err := found(m); err != nil {
				return "", fmt.Errorf("message %d: %w", m.Seq, err)
			}
			if passed++; passed == most {
				more := i+1 < len(a.Messages) || a.Next != 0
				return q.next(at, fmt.Sprint(arrivalOf(q.d, m.Seq)), more), nil
			}
		}
		ask.After, ask.From = a.Next, 0
		if a.Next == 0 || q.o.deps.Now().Sub(began) > filterTime {
			break
		}
	}
	return q.next(at, fmt.Sprint(ask.After), ask.After != 0), nil
}

// siftedOut is what became of the messages that a filter selects.
type siftedOut struct {
	done uint64
	left uint64 // held by receivers, or gone meanwhile
	next string
}

// scanSifted does a command to at most so many messages that the filter selects. They were enqueued within the times of the
// command. The filter looks first. A message that a receiver takes before the command comes is left alone.
func (q *inspection) scanSifted(at cursor, cmd fsm.Redrive, s *sift, most uint64) (out siftedOut, err error) {
	ask := fsm.Browse{After: cmd.After, MaxBytes: operatorBytes, States: 1 << fsm.StateActive}
	var chosen []fsm.SequenceNumber
	out.next, err = q.sifted(at, ask, s, most, func(m *fsm.Delivery) error {
		if m.EnqueuedAt >= cmd.From && (cmd.Until == 0 || m.EnqueuedAt < cmd.Until) {
			chosen = append(chosen, m.Seq)
		}
		return nil
	})
	if err != nil || len(chosen) == 0 {
		return out, err
	}
	o, err := q.propose(at.share, &fsm.Redrive{To: cmd.To, Discard: cmd.Discard, Numbers: chosen})
	out.done, out.left = o.Count, uint64(len(chosen))-o.Count
	return out, err
}

// filtered reads the filter of an act. A reason or a session is said in the filter then.
func (q *inspection) filtered() (*sift, error) {
	s, err := q.sift()
	if s != nil && (q.values.Has("reason") || q.values.Has("session")) {
		return nil, badRequest("The parameters reason and session do not go with filter: say it in the filter.")
	}
	return s, err
}
