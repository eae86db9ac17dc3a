package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/doctor"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

const (
	// healthWait bounds the wait for the nodes that are asked. A node that is well answers within aboutLimit.
	healthWait = 3 * time.Second
	// healthFresh is how long an answer is given again: the port is open, and each answer asks all nodes.
	healthFresh = time.Second
	// healthElection is the pause before a second look when a partition has no leader: most elections are over then.
	healthElection = 2 * time.Second
	// healthAsks is how many nodes are asked at a time.
	healthAsks = 16
)

// withHealth answers GET /api/health/cluster, for which no token is needed, as for /api/cluster.
func (n *node) withHealth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != client.HealthPath {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			answerJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "ask by GET"})
			return
		}
		h, err := n.clusterHealth(r.Context())
		if err != nil {
			answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return
		}
		answerJSON(w, http.StatusOK, h)
	})
}

// clusterHealth asks all nodes, unless that was done a moment ago, and says what is wrong.
func (n *node) clusterHealth(ctx context.Context) (*client.ClusterHealth, error) {
	select {
	case n.health.turn <- struct{}{}:
		defer func() { <-n.health.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if n.health.last != nil && time.Since(n.health.at) < healthFresh {
		return n.health.last, nil
	}
	st := &status{n}
	f := st.facts(ctx)
	found := doctor.Diagnose(f)
	if doctor.Passing(found) && sleep(ctx, healthElection, nil) {
		f = st.facts(ctx)
		found = doctor.Diagnose(f)
	}
	if err := ctx.Err(); err != nil { // what was not answered is the caller's doing
		return nil, err
	}
	h := &client.ClusterHealth{Node: string(st.names()[n.id]), Status: client.Healthy, Findings: found}
	if !doctor.Healthy(h.Findings) {
		h.Status = client.Unhealthy
	}
	for _, m := range f.Members {
		row := client.NodeHealth{ID: m.ID, State: m.State, Problem: m.Problem}
		if m.Says != nil {
			row.Node = *m.Says
			row.Settings = nil
		}
		h.Nodes = append(h.Nodes, row)
	}
	n.health.last, n.health.at = h, time.Now()
	return h, nil
}

// facts gathers what is known of the cluster: the catalog and gossip as of here, and what the nodes say themselves.
func (s *status) facts(ctx context.Context) *doctor.Facts {
	v, names := s.catalog(), s.names()
	show := func(id fsm.NodeID) string {
		if name, ok := names[id]; ok {
			return string(name)
		}
		return string(id)
	}
	f := &doctor.Facts{Now: time.Now(), Young: v.ClusterVersion() == fsm.VersionFirst, Groups: []doctor.Group{{ID: int(fsm.CatalogPartition)}}}
	for _, g := range v.Groups() {
		f.Groups = append(f.Groups, doctor.Group{ID: int(g.ID), Preferred: show(g.Members[0])})
	}
	var ids []fsm.NodeID
	alive := map[string]string{} // by the name that a node has in the catalog: as people know the node
	for _, row := range s.nodes(nil, func(id fsm.NodeID) fsm.NodeID { return fsm.NodeID(show(id)) }) {
		if row.State == "removed" {
			continue
		}
		ids = append(ids, row.UUID)
		n, registered := v.Node(row.UUID)
		if registered && row.State == cluster.MemberAlive.String() {
			alive[n.Name] = string(row.ID)
		}
		f.Members = append(f.Members, doctor.Member{ID: string(row.ID), State: row.State, Wish: row.Wish, Holds: v.HoldsAny(row.UUID),
			Unregistered: !registered})
	}
	for i := range f.Members {
		if n, ok := v.Node(ids[i]); ok && f.Members[i].State != cluster.MemberAlive.String() {
			f.Members[i].Successor = alive[n.Name]
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	var wg sync.WaitGroup
	places := make(chan struct{}, healthAsks)
	for i := range f.Members {
		m := &f.Members[i]
		if m.State != cluster.MemberAlive.String() {
			m.Problem = "it is " + m.State
			continue
		}
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			s.hear(ctx, m, ids[i], show)
		})
	}
	wg.Wait()
	var means []time.Duration
	for i := range f.Members {
		if mean := f.Members[i].WriteMean; mean > 0 {
			means = append(means, mean)
		}
	}
	f.SlowFrom = replica.SlowFrom(means)
	return f
}

// hear fills in what a node says.
func (s *status) hear(ctx context.Context, m *doctor.Member, id fsm.NodeID, show func(fsm.NodeID) string) {
	all, about, err := s.n.host.AskAbout(ctx, id)
	if err != nil {
		m.Problem = silence(err, id)
		return
	}
	m.Replicas = map[int]doctor.Replica{}
	for i := range all {
		if all[i].Partition == fsm.CatalogPartition {
			m.WriteMean = all[i].WriteMean
		}
		m.Replicas[int(all[i].Partition)] = shownReplica(&all[i], show)
	}
	if about == nil {
		return
	}
	says := new(doctor.Node)
	if err := json.Unmarshal(about, says); err != nil {
		s.n.log.Warn("what a node says of itself cannot be read", "peer", id, "error", err)
		return
	}
	m.Says = says
}

func shownReplica(st *replica.Status, show func(fsm.NodeID) string) doctor.Replica {
	r := doctor.Replica{Leading: st.Leading, Term: st.Term, Failure: st.Failure}
	for _, v := range st.Voters {
		r.Voters = append(r.Voters, show(v))
	}
	for _, d := range st.Digests {
		r.Digests = append(r.Digests, doctor.Digest{Index: d.Index, Form: d.Form, Sum: d.Sum})
	}
	return r
}
