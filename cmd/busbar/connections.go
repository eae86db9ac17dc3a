package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/audit"
)

// kindConnections is the call between nodes by which one lists or closes the connections of another. Programs before it
// answer that they do not serve it.
const kindConnections uint8 = 65

const (
	// maxConnections is how many connections of a node an answer has at most, and connectionsPage how many it has unless
	// the operator says otherwise.
	maxConnections  = 10_000
	connectionsPage = 1_000
	// maxConnectionBytes bounds what a node answers to another one: a connection shows up to a hundred links.
	maxConnectionBytes = 4 << 20
)

// frontDesk tells other nodes of the connections here. The mesh serves before the front end is there.
type frontDesk struct {
	front atomic.Pointer[transport.Server]
}

// connectionsAsk is one call to a node.
type connectionsAsk struct {
	Filter transport.ConnectionFilter `json:"filter"`
	Close  bool                       `json:"close,omitempty"`
	Max    int                        `json:"max,omitempty"`
}

// connectionsTold is the answer of one node.
type connectionsTold struct {
	Connections []transport.ConnectionView `json:"connections,omitempty"`
	Total       int                        `json:"total"`            // chosen, of which Connections may be the oldest only
	Closed      []string                   `json:"closed,omitempty"` // ids
}

func (d *frontDesk) serve(ctx context.Context, _ fsm.NodeID, request []byte) ([]byte, error) {
	var ask connectionsAsk
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, fmt.Errorf("the question about connections: %w", err)
	}
	front := d.front.Load()
	if front == nil {
		return nil, errors.New("the node is starting")
	}
	var told connectionsTold
	if ask.Close {
		if !ask.Filter.Any() {
			return nil, errors.New("nobody closes every connection")
		}
		told.Closed = front.CloseConnections(ctx, ask.Filter)
		told.Total = len(told.Closed)
		return json.Marshal(told)
	}
	all := front.Connections(ctx, ask.Filter)
	told.Total = len(all)
	bytes := 0
	for i := range all[:min(len(all), max(0, ask.Max), maxConnections)] {
		one, err := json.Marshal(all[i])
		if err != nil {
			return nil, err
		}
		if bytes += len(one); bytes > maxConnectionBytes {
			break
		}
		told.Connections = append(told.Connections, all[i])
	}
	return json.Marshal(told)
}

// nodeProblem is a node that did not answer.
type nodeProblem struct {
	Node    string `json:"node"`
	Problem string `json:"problem"`
}

// connectionsAnswer is what the operations port answers.
type connectionsAnswer struct {
	Connections []transport.ConnectionView `json:"connections"`
	Total       int                        `json:"total"`
	Closed      []string                   `json:"closed,omitempty"`
	// Problems are the nodes whose connections are not in it.
	Problems []nodeProblem `json:"problems"`
}

// withConnections serves GET /api/connections and POST /api/connections/close. opsGuard asks for a token.
func (n *node) withConnections(next http.Handler) http.Handler {
	serve := http.NewCrossOriginProtection().Handler(http.HandlerFunc(n.serveConnections))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == client.ConnectionsPath || r.URL.Path == client.CloseConnectionsPath {
			serve.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (n *node) serveConnections(w http.ResponseWriter, r *http.Request) {
	ask, err := connectionsAsked(r)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errors.ErrUnsupported) {
			status = http.StatusMethodNotAllowed
		}
		answerJSON(w, status, map[string]string{"error": err.Error()})
		return
	}
	all := n.askConnections(r.Context(), ask)
	if ask.Close && all.Total == 0 && len(all.Problems) == 0 {
		answerJSON(w, http.StatusNotFound, map[string]string{"error": "no connection is like that"})
		return
	}
	audit.Of(r.Context()).Count("connections", uint64(len(all.Closed)))
	answerJSON(w, http.StatusOK, all)
}

// connectionsAsked reads a request. A parameter with a typing error in its name must not close everything.
func connectionsAsked(r *http.Request) (ask connectionsAsk, err error) {
	ask.Close = r.URL.Path == client.CloseConnectionsPath
	if want := map[bool]string{true: http.MethodPost, false: http.MethodGet}[ask.Close]; r.Method != want {
		return ask, fmt.Errorf("%s takes %s: %w", r.URL.Path, want, errors.ErrUnsupported)
	}
	ask.Max = connectionsPage
	for name, values := range r.URL.Query() {
		switch {
		case len(values) != 1 || values[0] == "":
			return ask, fmt.Errorf("%s must be given once, and not empty", name)
		case name == "id":
			ask.Filter.ID = values[0]
		case name == "client":
			ask.Filter.Client = values[0]
		case name == "entity":
			ask.Filter.Entity = values[0]
		case name == "max" && !ask.Close:
			if ask.Max, err = strconv.Atoi(values[0]); err != nil || ask.Max < 1 || ask.Max > maxConnections {
				return ask, fmt.Errorf("max must be a number from 1 to %d", maxConnections)
			}
		default:
			return ask, fmt.Errorf("there is no parameter %q here; known are id, client, entity and, to list, max", name)
		}
	}
	if ask.Close && !ask.Filter.Any() {
		return ask, errors.New("say what to close by id, client or entity")
	}
	return ask, nil
}

// askConnections asks all nodes that are there.
func (n *node) askConnections(ctx context.Context, ask connectionsAsk) connectionsAnswer {
	out := connectionsAnswer{Connections: []transport.ConnectionView{}, Problems: []nodeProblem{}}
	question, err := json.Marshal(ask)
	if err != nil { // the value is made of strings and numbers
		out.Problems = append(out.Problems, nodeProblem{string(n.id), err.Error()})
		return out
	}
	names := (&status{n}).names()
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, healthAsks)
	for _, m := range n.gossip.Members() {
		if m.State != cluster.MemberAlive {
			continue
		}
		name := string(m.ID)
		if shown, ok := names[m.ID]; ok {
			name = string(shown)
		}
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			var told connectionsTold
			answer, err := n.mesh.Call(ctx, m.ID, kindConnections, question)
			if err == nil {
				err = json.Unmarshal(answer, &told)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Problems = append(out.Problems, nodeProblem{name, silence(err, m.ID)})
				return
			}
			for i := range told.Connections {
				told.Connections[i].Node = name
			}
			out.Connections = append(out.Connections, told.Connections...)
			out.Closed = append(out.Closed, told.Closed...)
			out.Total += told.Total
		})
	}
	wg.Wait()
	slices.SortFunc(out.Connections, func(a, b transport.ConnectionView) int { return a.Since.Compare(b.Since) })
	out.Connections = out.Connections[:min(len(out.Connections), ask.Max)]
	slices.Sort(out.Closed)
	slices.SortFunc(out.Problems, func(a, b nodeProblem) int { return slices.Compare([]string{a.Node}, []string{b.Node}) })
	return out
}
