package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/doctor"
	"github.com/busbar-mq/busbar/fsm"
)

const (
	// maxEventStreams bounds the streams of this node: each looks again and again.
	maxEventStreams = 16
	// eventLook is the pause between two looks at leaders, nodes and entities, faultLook that between two questions to all
	// nodes about what is wrong.
	eventLook = 250 * time.Millisecond
	faultLook = 3 * time.Second
	// eventBeat is how long a stream says nothing at most: whoever reads it sees that it lives.
	eventBeat = 15 * time.Second
)

// withEvents serves GET /api/events: what changes in the cluster, as this node sees it, until the client goes. opsGuard
// asks for a token.
func (n *node) withEvents(next http.Handler) http.Handler {
	streams := make(chan struct{}, maxEventStreams)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != client.EventsPath {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			answerJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "ask by GET"})
			return
		}
		kinds, err := eventKinds(r)
		if err != nil {
			answerJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		select {
		case streams <- struct{}{}:
			defer func() { <-streams }()
		default:
			answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": fmt.Sprintf("%d streams of events are open at this node, the maximum",
				maxEventStreams)})
			return
		}
		n.streamEvents(w, r, kinds)
	})
}

// eventKinds are the kinds that a request wants, all without the parameter kind.
func eventKinds(r *http.Request) ([]string, error) {
	for name := range r.URL.Query() {
		if name != "kind" {
			return nil, fmt.Errorf("there is no parameter %q here, but kind", name)
		}
	}
	var wanted []string
	for _, text := range r.URL.Query()["kind"] {
		for kind := range strings.SplitSeq(text, ",") {
			if !slices.Contains(client.EventKinds(), kind) {
				return nil, fmt.Errorf("kind must be a list of %s, not %q", strings.Join(client.EventKinds(), ", "), kind)
			}
			wanted = append(wanted, kind)
		}
	}
	return wanted, nil
}

// streamEvents writes events as they come: server-sent ones to whom asks for them, else lines of JSON.
func (n *node) streamEvents(w http.ResponseWriter, r *http.Request, kinds []string) {
	sse := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // none
	kind := map[bool]string{true: "text/event-stream", false: "application/x-ndjson"}[sse]
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	write := func(e client.Event) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		form := "%s\n"
		if sse {
			form = "data: %s\n\n"
		}
		if _, err := fmt.Fprintf(w, form, text); err != nil {
			return err
		}
		return control.Flush()
	}
	s := &status{n}
	seen := s.sight(nil)
	last := time.Now()
	if write(client.Event{At: last.UTC(), Kind: client.EventStream, Change: "begun", Node: string(s.names()[n.id]),
		Text: fmt.Sprintf("the events are those that node %s sees", s.names()[n.id])}) != nil {
		return
	}
	var faults chan []doctor.Finding
	ctx, cancel := context.WithCancel(r.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if len(kinds) == 0 || slices.Contains(kinds, client.EventAlarm) {
		faults = make(chan []doctor.Finding)
		wg.Go(func() { n.lookForFaults(ctx, faults) })
	}
	look := time.NewTicker(eventLook)
	defer look.Stop()
	for {
		var events []client.Event
		select {
		case <-r.Context().Done():
			return
		case <-n.background.Done():
			return
		case found := <-faults:
			events = seen.judge(found)
		case <-look.C:
			now := s.sight(seen)
			events = now.since(seen)
			seen = now
		}
		for _, e := range events {
			if len(kinds) > 0 && !slices.Contains(kinds, e.Kind) {
				continue
			}
			e.At = time.Now().UTC()
			if last = e.At; write(e) != nil {
				return
			}
		}
		if time.Since(last) > eventBeat {
			last = time.Now()
			if write(client.Event{At: last.UTC(), Kind: client.EventStream, Change: "alive"}) != nil {
				return
			}
		}
	}
}

// lookForFaults asks for the health of the cluster until ctx ends.
func (n *node) lookForFaults(ctx context.Context, found chan<- []doctor.Finding) {
	for {
		if h, err := n.clusterHealth(ctx); err == nil {
			select {
			case found <- h.Findings:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(faultLook):
		case <-ctx.Done():
			return
		}
	}
}

// sight is what a stream compares: the cluster at one moment, as this node sees it.
type sight struct {
	leaders  map[fsm.PartitionID]leaderSeen
	nodes    map[string]string // state by name
	version  uint64            // of the catalog
	entities map[fsm.EntityID]*fsm.Descriptor
	faults   map[string]doctor.Finding // nil before the first answer
}

type leaderSeen struct {
	node string
	term uint64
}

// sight looks; what has not changed since before is taken from there.
func (s *status) sight(before *sight) *sight {
	names := s.names()
	show := func(id fsm.NodeID) string {
		if name, ok := names[id]; ok {
			return string(name)
		}
		return string(id)
	}
	now := &sight{leaders: map[fsm.PartitionID]leaderSeen{}, nodes: map[string]string{}}
	for _, row := range s.n.view.Leaders() {
		if leader, known := s.n.view.Leader(row.Partition); known {
			now.leaders[row.Partition] = leaderSeen{show(leader), row.Term}
		} else {
			now.leaders[row.Partition] = leaderSeen{"", row.Term}
		}
	}
	for _, m := range s.n.gossip.Members() {
		if state, twice := now.nodes[show(m.ID)]; !twice || state != cluster.MemberAlive.String() {
			now.nodes[show(m.ID)] = m.State.String()
		}
	}
	v := s.catalog()
	now.version = v.Version()
	if before != nil {
		now.faults = before.faults
		if before.version == now.version {
			now.entities = before.entities
			return now
		}
	}
	now.entities = map[fsm.EntityID]*fsm.Descriptor{}
	for _, kind := range []fsm.EntityKind{fsm.Queue, fsm.Topic, fsm.Subscription} {
		for _, d := range v.List(kind, 0, -1) {
			now.entities[d.ID] = d
		}
	}
	return now
}

// since tells what has changed, in an order that is always the same.
func (now *sight) since(before *sight) (events []client.Event) {
	for p, l := range now.leaders { // order-free: sorted below
		if l == before.leaders[p] {
			continue
		}
		e := client.Event{Kind: client.EventLeader, Change: "elected", Node: l.node, Partition: int(p), Term: l.term}
		name := fmt.Sprintf("partition %d", p)
		if p == fsm.CatalogPartition {
			name = "the catalog"
		}
		e.Text = fmt.Sprintf("%s is led by %s, term %d", name, l.node, l.term)
		if l.node == "" {
			e.Change, e.Text = "lost", fmt.Sprintf("%s has no leader, term %d", name, l.term)
		}
		events = append(events, e)
	}
	for name, state := range now.nodes { // order-free: sorted below
		if state != before.nodes[name] {
			events = append(events, client.Event{Kind: client.EventNode, Change: state, Node: name, Text: fmt.Sprintf("node %s is %s", name, state)})
		}
	}
	for name := range before.nodes { // order-free: sorted below
		if _, there := now.nodes[name]; !there {
			events = append(events, client.Event{Kind: client.EventNode, Change: "gone", Node: name, Text: fmt.Sprintf("node %s is not known any more", name)})
		}
	}
	for id, d := range now.entities { // order-free: sorted below
		was := before.entities[id]
		switch {
		case was == nil:
			events = append(events, entityEvent(d, "created"))
		case was.Version != d.Version:
			events = append(events, entityEvent(d, "changed"))
		}
	}
	for id, d := range before.entities { // order-free: sorted below
		if now.entities[id] == nil {
			events = append(events, entityEvent(d, "deleted"))
		}
	}
	slices.SortFunc(events, func(a, b client.Event) int { return strings.Compare(a.Kind+a.Text, b.Kind+b.Text) })
	return events
}

func entityEvent(d *fsm.Descriptor, change string) client.Event {
	kind := map[fsm.EntityKind]string{fsm.Queue: "queue", fsm.Topic: "topic", fsm.Subscription: "subscription"}[d.Kind]
	return client.Event{Kind: client.EventEntity, Change: change, Entity: d.Name, Text: fmt.Sprintf("%s %s was %s", kind, d.Name, change)}
}

// judge tells which faults have begun and ended since the last answer. The first answer tells those that are there.
func (now *sight) judge(found []doctor.Finding) (events []client.Event) {
	faults := map[string]doctor.Finding{}
	for _, x := range found {
		key := fmt.Sprint(x.Code, " ", x.Node)
		if x.Partition != nil {
			key += fmt.Sprint(" ", *x.Partition)
		}
		faults[key] = x
		if _, known := now.faults[key]; !known {
			events = append(events, client.Event{Kind: client.EventAlarm, Change: "raised", Node: x.Node, Code: x.Code,
				Text: fmt.Sprintf("%s: %s", x.Severity, x.Says)})
		}
	}
	for key, x := range now.faults { // order-free: sorted below
		if _, there := faults[key]; !there {
			events = append(events, client.Event{Kind: client.EventAlarm, Change: "cleared", Node: x.Node, Code: x.Code, Text: "over: " + x.Says})
		}
	}
	now.faults = faults
	slices.SortFunc(events, func(a, b client.Event) int { return strings.Compare(a.Text, b.Text) })
	return events
}
