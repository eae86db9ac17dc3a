package rest

import (
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// ReasonView counts the dead letters of one reason on a page.
type ReasonView struct {
	Reason string     `json:"reason"`
	Count  uint64     `json:"count"`
	Oldest *time.Time `json:"oldest,omitempty"`
	Newest *time.Time `json:"newest,omitempty"`
	// Example is the description of the last of them.
	Example string `json:"example"`
}

// reasons counts dead letters by their reasons, as many as a page has; who adds up the pages has the whole.
func (q *inspection) reasons() (any, error) {
	at, after, most, err := q.place("max", "cursor")
	if err != nil {
		return nil, err
	}
	if q.sub == fsm.Main {
		q.sub = fsm.DeadLetter
	}
	a, err := q.query(at.share, &fsm.Browse{After: after, Max: most, MaxBytes: operatorBytes})
	if err != nil {
		return nil, err
	}
	all := []ReasonView{}
	for i := range a.Messages {
		m := &a.Messages[i]
		n := slices.IndexFunc(all, func(v ReasonView) bool { return v.Reason == m.Reason })
		if n < 0 {
			n = len(all)
			all = append(all, ReasonView{Reason: m.Reason, Oldest: moment(m.EnqueuedAt)})
		}
		v := &all[n]
		v.Count++
		v.Newest, v.Example = moment(m.EnqueuedAt), m.Description
	}
	return map[string]any{"reasons": all, "next": q.next(at, fmt.Sprint(a.Next), a.Next != 0)}, nil
}
