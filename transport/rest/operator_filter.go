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

// sifted goes through messages until it has a page of those that the filter selects. A request that has seen much and
// found little answers with what it has, and where to go on.
func (q *inspection) sifted(at cursor, ask fsm.Browse, s *sift, most uint32) (all []any, next string, err error) {
	all = []any{}
	began := q.o.deps.Now()
	ask.Max = filterPage
	for seen := 0; seen < filterScan; {
		a, err := q.query(at.share, &ask)
		if err != nil {
			return nil, "", err
		}
		for i := range a.Messages {
			m := &a.Messages[i]
			seen++
			look, err := q.o.deps.Look(m)
			if err != nil {
				return nil, "", fmt.Errorf("message %d: %w", m.Seq, err)
			}
			if !s.selects(look, m.Seq) {
				continue
			}
			shown, err := q.o.deps.Show(m)
			if err != nil {
				return nil, "", fmt.Errorf("message %d: %w", m.Seq, err)
			}
			if all = append(all, shown); len(all) == int(most) {
				more := i+1 < len(a.Messages) || a.Next != 0
				return all, q.next(at, fmt.Sprint(arrivalOf(q.d, m.Seq)), more), nil
			}
		}
		ask.After, ask.From = a.Next, 0
		if a.Next == 0 || q.o.deps.Now().Sub(began) > filterTime {
			break
		}
	}
	return all, q.next(at, fmt.Sprint(ask.After), ask.After != 0), nil
}
