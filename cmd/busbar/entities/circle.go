package entities

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// CircleWarnings names every entity of a file whose messages come back to it (RUL-24). A circle of existing entities
// is no error: the hop limit ends such a message (S-208).
func CircleWarnings(all []Spec) []string {
	var warnings []string
	for _, e := range circles(all) {
		warnings = append(warnings, fmt.Sprintf("line %d, %s: %s", e.line, e.pointer, circleText(e.path)))
	}
	return warnings
}

func circleText(path string) string {
	return path + " forwards to itself or in a circle: its messages end as transfer dead letters after four moves"
}

// circles returns the queues and subscriptions whose messages come back to them.
func circles(all []Spec) (in []Spec) {
	next := map[string][]string{} // by path in lower case: where its messages go
	for _, e := range all {
		path := strings.ToLower(e.path)
		if topic, _, below := strings.Cut(path, "/subscriptions/"); below && e.kind == Subscription {
			next[topic] = append(next[topic], path)
		}
		for _, p := range e.props {
			if strings.HasPrefix(p.Name, "Forward") && p.Value != "" {
				next[path] = append(next[path], strings.ToLower(TargetOf(p.Value)))
			}
		}
	}
	for _, e := range all {
		path := strings.ToLower(e.path)
		seen, todo := map[string]bool{}, next[path]
		for len(todo) > 0 && !seen[path] {
			at := todo[0]
			todo = todo[1:]
			if !seen[at] {
				seen[at] = true
				todo = append(todo[:len(todo):len(todo)], next[at]...)
			}
		}
		if seen[path] && e.kind != Topic {
			in = append(in, e)
		}
	}
	return in
}

// ordered sorts entities so that each comes behind those that it forwards to. An entity that is there already waits
// for nothing. New entities that forward in a circle are an error, before anything is made. None of them can be the
// first, because the destination must exist (S-207).
func (a *Applier) ordered(ctx context.Context, all []Spec) (list []Spec, err error) {
	waiting := slices.Clone(all)
	for len(waiting) > 0 {
		before := waiting
		waiting = nil
		for _, e := range before {
			if awaits(e, before) {
				waiting = append(waiting, e)
				continue
			}
			list = append(list, e)
		}
		if len(waiting) < len(before) {
			continue
		}
		waiting = nil
		for _, e := range before {
			there, err := Get(ctx, a.API, e.path)
			if err != nil {
				return nil, e.errorf("%w", err)
			}
			if there == nil {
				waiting = append(waiting, e)
				continue
			}
			list = append(list, e)
		}
		if len(waiting) == len(before) {
			return nil, circleError(waiting)
		}
	}
	return list, nil
}

// circleError names the entities of one circle among those that all wait for another one.
func circleError(waiting []Spec) error {
	var way []Spec
	for e := waiting[0]; ; {
		if first := slices.IndexFunc(way, func(o Spec) bool { return o.path == e.path }); first >= 0 {
			way = way[first:]
			break
		}
		way = append(way, e)
		for _, other := range waiting {
			if other.path != e.path && awaits(e, []Spec{other}) {
				e = other
				break
			}
		}
	}
	names := make([]string, len(way))
	for i, e := range way {
		names[i] = e.path
	}
	return way[0].errorf("%s are new and forward in a circle: each waits for the next to exist. Make one of them without "+
		"forwarding first, and set its forwarding with a client afterwards", strings.Join(names, ", "))
}

// WarnOfCircle tells on standard error if a queue that was just created forwards to itself or in a circle
// (RUL-24). It follows at most 100 entities; what it cannot read it does not follow.
func WarnOfCircle(ctx context.Context, m *dial.Management, name string, tell func(string)) {
	var all []Spec
	todo := []string{name}
	seen := map[string]bool{}
	for len(todo) > 0 && len(seen) < 100 {
		path := strings.ToLower(todo[0])
		if todo = todo[1:]; seen[path] {
			continue
		}
		seen[path] = true
		there, err := Get(ctx, m, path)
		if err != nil || there == nil {
			continue
		}
		e := Spec{path: path, kind: there.Kind}
		for _, property := range []string{"ForwardTo", "ForwardDeadLetteredMessagesTo"} {
			if to := TargetOf(there.Value(property)); to != "" {
				e.props = append(e.props, propertySpec{Property: Property{property, to}})
				todo = append(todo, to)
			}
		}
		all = append(all, e)
		if e.kind == Topic {
			below, _ := List(ctx, m, Subscription, path)
			for _, s := range below {
				todo = append(todo, s.Path)
			}
		}
	}
	for _, e := range circles(all) {
		if strings.EqualFold(e.path, name) {
			tell(circleText(name))
		}
	}
}
