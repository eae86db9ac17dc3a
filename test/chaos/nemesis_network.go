package main

import (
	"fmt"
	"net"
	"time"

	"github.com/busbar-mq/busbar/test/namespaces"
)

// lead sends what one side sends to an address to nobody: the neighbour table of from gets a hardware
// address that does not exist. The sender notices nothing, as with a dead switch; one direction only.
func (s *strike) lead(from string, to string) error {
	ns := []string{}
	if from != "" {
		ns = []string{"-n", from}
	}
	dev := "eth0"
	if from == "" {
		dev = "br0"
	}
	argv := func(words ...string) []string {
		return append(append(append([]string{"ip"}, ns...), "neigh"), words...)
	}
	back, err := s.bed.sup.register(undo{Argv: argv("del", to, "dev", dev), Within: s.limit.Seconds()})
	if err != nil {
		return err
	}
	s.onHeal(back)
	return namespaces.Run(argv("replace", to, "lladdr", nowhereMAC, "dev", dev, "nud", "permanent")...)
}

// silent reports whether a connection between two places does not come about. from is a node; the
// attempt is made inside its namespace.
func silent(from *node, to string) error {
	err := namespaces.Run("nsenter", "--net=/run/netns/"+netns(from.number), "timeout", "0.7", "bash", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", to, portPeer))
	if err == nil {
		return fmt.Errorf("%s still reaches %s", from.ID, to)
	}
	return nil
}

// isolate loses a host: nothing gets in or out, and nobody is told.
func isolate(s *strike) error {
	ns := netns(s.n.number)
	s.what = s.n.ID
	if err := s.lead("", s.n.ip); err != nil {
		return err
	}
	if err := s.lead(ns, clientIP); err != nil {
		return err
	}
	for i, other := range s.bed.nodes {
		if other == s.n {
			continue
		}
		for _, to := range []string{other.ip, fmt.Sprintf("%s%d", proxyPrefix, i+1)} {
			if err := s.lead(ns, to); err != nil {
				return err
			}
		}
		if err := s.lead(netns(other.number), s.n.ip); err != nil {
			return err
		}
	}
	s.bites = func(*bed) error {
		c, err := net.DialTimeout("tcp", s.n.AMQP, 500*time.Millisecond)
		if err == nil {
			_ = c.Close()
			return fmt.Errorf("%s is still reached", s.n.ID)
		}
		return nil
	}
	return nil
}

func (s *strike) other() *node {
	i := s.rng.IntN(len(s.bed.nodes) - 1)
	for _, n := range s.bed.nodes {
		if n == s.n {
			continue
		}
		if i == 0 {
			return n
		}
		i--
	}
	return nil
}

// cutPair cuts two nodes from each other; both reach the third.
func cutPair(s *strike) error {
	o := s.other()
	s.what = s.n.ID + " and " + o.ID
	s.bites = func(*bed) error { return silent(s.n, o.ip) }
	if err := s.lead(netns(s.n.number), o.ip); err != nil {
		return err
	}
	return s.lead(netns(o.number), s.n.ip)
}

// cutOneWay lets one direction through.
func cutOneWay(s *strike) error {
	o := s.other()
	s.what = s.n.ID + " to " + o.ID
	s.bites = func(*bed) error { return silent(s.n, o.ip) }
	return s.lead(netns(s.n.number), o.ip)
}

// paths returns the paths between two nodes, there and back.
func (b *bed) paths(a, c *node) (there, back *path) {
	return b.proxies[c.number-1].from(a.number), b.proxies[a.number-1].from(c.number)
}

// rule sets rules on paths until the strike heals; they bite when they affected something. The
// proxies end with this process, so there is nothing for the supervisor to take back.
func (s *strike) rule(r rules, paths ...*path) {
	var before int64
	total := func() (n int64) {
		for _, p := range paths {
			n += p.affected.Load()
		}
		return n
	}
	before = total()
	for _, p := range paths {
		p.set(r)
		s.onHeal(func() error { p.set(rules{}); return nil })
	}
	s.bites = func(*bed) error {
		if total() == before {
			return fmt.Errorf("nothing came along")
		}
		return nil
	}
}

// around returns every path to and from a node.
func (s *strike) around() (all []*path) {
	for _, o := range s.bed.nodes {
		if o != s.n {
			there, back := s.bed.paths(s.n, o)
			all = append(all, there, back)
		}
	}
	return all
}

func delay(s *strike) error {
	d := time.Duration(20+s.rng.IntN(400)) * time.Millisecond
	s.what = fmt.Sprintf("%s by %s", s.n.ID, d)
	s.rule(rules{Delay: d}, s.around()...)
	return nil
}

// reset breaks every connection of a node that lives, several times.
func reset(s *strike) error {
	s.what = s.n.ID
	all := s.around()
	s.rule(rules{}, all...)
	for range 5 {
		for _, p := range all {
			p.reset()
		}
		time.Sleep(300 * time.Millisecond)
	}
	return nil
}

// halfOpen lets connections stand on which nothing moves, both ways.
func halfOpen(s *strike) error {
	o := s.other()
	s.what = s.n.ID + " and " + o.ID
	there, back := s.bed.paths(s.n, o)
	s.rule(rules{HoldForward: true, HoldBack: true, DropDatagrams: true}, there, back)
	return nil
}

// oneWay lets what one node sends to another not arrive, on whoever's connections.
func oneWay(s *strike) error {
	o := s.other()
	s.what = s.n.ID + " to " + o.ID
	there, back := s.bed.paths(s.n, o)
	s.rule(rules{HoldForward: true, DropDatagrams: true}, there)
	bites := s.bites
	s.rule(rules{HoldBack: true}, back)
	second := s.bites
	s.bites = func(b *bed) error {
		if bites(b) == nil {
			return nil
		}
		return second(b)
	}
	return nil
}

// refuse resets what stands and lets nothing new be made.
func refuse(s *strike) error {
	s.what = s.n.ID
	all := s.around()
	s.rule(rules{RefuseNew: true, DropDatagrams: true}, all...)
	for _, p := range all {
		p.reset()
	}
	return nil
}

// loseGossip lets the mesh live while gossip's datagrams are lost.
func loseGossip(s *strike) error {
	s.what = s.n.ID
	s.rule(rules{DropDatagrams: true}, s.around()...)
	return nil
}
