package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/transport/auth"
)

// Faults that change who is in the cluster. Nodes that join are guests: no client connects to one, and each leaves again.

const (
	// placeLimit bounds the wait for a change of members: a dozen replicas move, one after the other.
	placeLimit = 2 * time.Minute
	// leadLimit bounds the wait until a drained node leads nothing.
	leadLimit = 20 * time.Second
	// commandTries is how often a command of an operator is said while faults keep it from being heard.
	commandTries = 20
)

// command has a node carry out a command to the cluster.
func (b *bed) command(ctx context.Context, via *node, verb string, query url.Values) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, ops := via.Doors()
	target := "http://" + ops + "/api/cluster/" + verb + "?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return err
	}
	req.Close = true
	// Beyond the loopback interface the operations port wants a token for commands to the cluster.
	req.Header.Set("Authorization", auth.NewToken("http://"+ops+"/", cluster.KeyName, cluster.Key, time.Now().Add(time.Minute)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return fmt.Errorf("POST %s: %s: %s", target, res.Status, text)
	}
	return nil
}

// want has the cluster hear what an operator wants of a node. Other faults may be under way, so each other node is
// asked in turn.
func (b *bed) want(ctx context.Context, verb string, of *node) error {
	var err error
	for try := range commandTries {
		via := b.nodes[try%len(b.nodes)]
		if via == of || via.Pid() == 0 {
			continue
		}
		if err = b.command(ctx, via, verb, url.Values{"node": {of.ID}}); err == nil || ctx.Err() != nil {
			return err
		}
		wait(ctx, time.Second)
	}
	return fmt.Errorf("%s %s: %w", verb, of.ID, err)
}

// until asks the cluster for its status until a question has the answer "".
func (b *bed) until(ctx context.Context, limit time.Duration, what string, why func(cluster.Status) string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := "no node answers"
	for {
		if s, err := b.all.Status(ctx); err == nil {
			if last = why(s); last == "" {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: not after %s: %s", what, limit, last)
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// whole says what is not where it should be, "" if every group has its members and no replica has failed.
func whole(s cluster.Status) string {
	for _, p := range s.Partitions {
		if len(p.Differs) > 0 || p.Failure != "" || p.Leader == "" {
			return fmt.Sprintf("partition %d: leader %q, %s, %s", p.ID, p.Leader, strings.Join(p.Differs, "; "), p.Failure)
		}
	}
	if len(s.Partitions) < 2 || len(s.Moves) > 0 {
		return fmt.Sprintf("%d partitions, of which %v move", len(s.Partitions), s.Moves)
	}
	return ""
}

// level says why the replicas of messages are not spread over these nodes alone, "" if they are.
func level(names ...string) func(cluster.Status) string {
	return func(s cluster.Status) string {
		if why := whole(s); why != "" {
			return why
		}
		count := map[string]int{}
		for _, p := range s.Partitions[1:] {
			for _, n := range p.Replicas {
				count[n]++
			}
		}
		most, least := 0, len(s.Partitions)
		for _, n := range names {
			most, least = max(most, count[n]), min(least, count[n])
			delete(count, n)
		}
		if most > least+1 || len(count) > 0 {
			return fmt.Sprintf("%v hold between %d and %d replicas, others %v", names, least, most, count)
		}
		return ""
	}
}

// holds says whether a node lacks a replica of messages.
func holds(name string) func(cluster.Status) string {
	return func(s cluster.Status) string {
		for _, p := range s.Partitions {
			if p.ID > 0 && slices.Contains(p.Replicas, name) {
				return ""
			}
		}
		return name + " has no replica"
	}
}

// leadsNothing says what a node leads.
func leadsNothing(name string) func(cluster.Status) string {
	return func(s cluster.Status) string {
		for _, p := range s.Partitions {
			if p.Leader == name {
				return fmt.Sprintf("%s leads partition %d", name, p.ID)
			}
		}
		return ""
	}
}

// absent says how a node is still in the cluster.
func absent(name string) func(cluster.Status) string {
	return func(s cluster.Status) string {
		for _, n := range s.Nodes {
			if n.ID == name && n.State != "removed" {
				return fmt.Sprintf("%s is %s", name, n.State)
			}
		}
		return ""
	}
}

// replaced says how a node that has another identity than before lacks the places of the one before it. A dead node of
// its name is shown by its identity, once the living one is known.
func replaced(name, was string, then func(cluster.Status) string) func(cluster.Status) string {
	return func(s cluster.Status) string {
		i := slices.IndexFunc(s.Nodes, func(n cluster.NodeRow) bool { return n.ID == name })
		if i < 0 || s.Nodes[i].UUID == was {
			return name + " is not known under another identity"
		}
		for _, p := range s.Partitions {
			if slices.Contains(p.Replicas, was) {
				return fmt.Sprintf("partition %d has the lost replica", p.ID)
			}
		}
		return then(s)
	}
}

// invite starts a node that is new to the cluster.
func (b *bed) invite() (*node, error) {
	n, err := b.newNode(b.cfg, len(b.nodes)+len(b.guests)+1)
	if err != nil {
		return nil, err
	}
	b.guests = append(b.guests, n)
	if b.network != overLoopback {
		b.address(b.cfg, n)
		return n, n.Start()
	}
	if err := cluster.OnLoopback([]*cluster.Node{n.Node}, cluster.Membership{}); err != nil {
		return nil, err
	}
	m := b.cfg.membership()
	m.Advertise = n.ip
	for _, o := range b.nodes {
		m.Join = append(m.Join, o.Gossip)
	}
	n.Member(m)
	return n, n.Start()
}

// dismiss takes a node out of the cluster in good order and ends its process.
func (b *bed) dismiss(ctx context.Context, n *node) error {
	if err := b.want(ctx, "remove", n); err != nil {
		return err
	}
	if err := b.until(ctx, placeLimit, n.ID+" is forgotten", absent(n.ID)); err != nil {
		return err
	}
	return n.end(syscall.SIGTERM, 30*time.Second)
}

// wipe gives a node that does not run an empty disk: its next start is that of another node. Nothing of the old one may
// stay, for a disk that is nearly full gets no replicas.
func (n *node) wipe() error { return os.RemoveAll(n.Dir) }

// identity is the one that a node has beside its name.
func (b *bed) identity(ctx context.Context, n *node) (id string, err error) {
	s, err := n.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, row := range s.Nodes {
		if row.ID == n.ID || row.UUID == s.Node {
			id = row.UUID
		}
	}
	if id == "" {
		return "", fmt.Errorf("%s does not list itself: %+v", n.ID, s.Nodes)
	}
	return id, nil
}

// another waits until a node is ready under another identity than before.
func (b *bed) another(ctx context.Context, n *node, was string) error {
	ctx, cancel := context.WithTimeout(ctx, placeLimit)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		return err
	}
	is, err := b.identity(ctx, n)
	if err == nil && is == was {
		err = fmt.Errorf("%s is %s, as before", n.ID, is)
	}
	return err
}

// visit has a node join; when the fault heals, the node is removed.
func visit(s *strike) error {
	n, err := s.bed.invite()
	if err != nil {
		return err
	}
	s.what = n.ID
	s.onHeal(func() error { return s.bed.dismiss(context.Background(), n) })
	s.bites = func(b *bed) error {
		return b.until(context.Background(), placeLimit, n.ID+" takes its share", holds(n.ID))
	}
	return nil
}

// drain empties a node for a while.
func drain(s *strike) error {
	ctx, cancel := s.ctx()
	defer cancel()
	n := s.n
	s.what = n.ID
	s.onHeal(func() error { return s.bed.want(context.Background(), "undrain", n) })
	s.bites = func(b *bed) error {
		return b.until(context.Background(), leadLimit, n.ID+" gives its leaderships away", leadsNothing(n.ID))
	}
	return s.bed.want(ctx, "drain", n)
}

// replaceDisk loses the data of a node. It waits until the cluster is whole before, and when the fault heals: three
// replicas bear one loss.
func replaceDisk(s *strike) error {
	ctx, cancel := context.WithTimeout(context.Background(), placeLimit)
	defer cancel()
	n := s.n
	if err := s.bed.until(ctx, placeLimit, "the cluster is whole", whole); err != nil {
		return err
	}
	was, err := s.bed.identity(ctx, n)
	if err != nil {
		return err
	}
	s.what = n.ID
	s.onHeal(func() error {
		return errors.Join(restart(n), s.bed.until(context.Background(), placeLimit, n.ID+" has its places again",
			replaced(n.ID, was, whole)))
	})
	s.bites = func(b *bed) error { return b.another(context.Background(), n, was) }
	if err := n.end(syscall.SIGKILL, 10*time.Second); err != nil {
		return err
	}
	return errors.Join(n.wipe(), n.Start())
}
