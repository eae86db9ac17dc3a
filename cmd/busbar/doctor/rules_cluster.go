package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unreachable finds nodes that should be there and do not answer. A node that left is another rule's.
func (d *diagnosis) unreachable() {
	for i := range d.f.Members {
		switch m := &d.f.Members[i]; {
		case m.answers() || (m.State == "left" || m.Successor != "") && !m.Holds || m.Wish == "gone":
		case m.State == "alive":
			d.of(m.ID, CodeUnreachable, Alarm, "look at the network and at the log of "+m.ID+"; then start it again: systemctl restart busbar",
				"node %s is there and does not answer: %s.", m.ID, m.Problem)
		case m.Holds:
			d.of(m.ID, CodeUnreachable, Alarm, fmt.Sprintf("start it: systemctl start busbar; if it never comes back: busbar cluster forget %s", m.ID),
				"node %s is away, and the cluster wants replicas there.", m.ID)
		default:
			d.of(m.ID, CodeUnreachable, Warning, fmt.Sprintf("start it: systemctl start busbar; if it never comes back: busbar cluster forget %s", m.ID),
				"node %s is away and holds nothing.", m.ID)
		}
	}
}

// unregistered finds nodes that are there and of which the catalog does not know. Nobody can call them by their names, and they
// get no place.
func (d *diagnosis) unregistered() {
	for i := range d.f.Members {
		if m := &d.f.Members[i]; m.Unregistered && m.State == "alive" {
			d.of(m.ID, CodeUnregistered, Alarm, "wait some seconds; if it stays so, look at the log of the node",
				"node %s is there, and the catalog does not have it yet.", m.ID)
		}
	}
}

// young finds a new cluster without a version. If one of its nodes is lost then, no other one can be forgotten for long. While
// old programs are exchanged, there is no version either, and versions tells of them.
func (d *diagnosis) young() {
	silent := slices.ContainsFunc(d.f.Members, func(m Member) bool { return m.answers() && m.Says == nil })
	if !d.f.Young || silent || len(d.values(func(n *Node) string { return n.Version })) > 1 {
		return
	}
	d.of("", CodeNoVersion, Alarm, "wait some seconds; if it stays so, start every node of the cluster",
		"the cluster has no version yet, so no node can be drained, removed or forgotten.")
}

// left finds nodes that said goodbye or were replaced, hold nothing and are still listed.
func (d *diagnosis) left() {
	for i := range d.f.Members {
		switch m := &d.f.Members[i]; {
		case m.Holds || m.Wish != "" || m.answers():
		case m.Successor != "":
			d.of(m.ID, CodeReplaced, Warning, "busbar cluster forget "+m.ID,
				"node %s has the name of %s, which lives and has its places; it is still listed.", m.ID, m.Successor)
		case m.State == "left":
			d.of(m.ID, CodeLeft, Warning, "start it again: systemctl start busbar; if it is to stay away: busbar cluster forget "+m.ID,
				"node %s left in good order, holds nothing and is still listed.", m.ID)
		}
	}
}

// quorums finds partitions that have lost their majority, or would with one more loss.
func (d *diagnosis) quorums() {
	for _, g := range d.f.Groups {
		leader, lead := d.f.leader(g.ID)
		voters := lead.Voters
		if leader == "" {
			voters = d.votersOf(g.ID)
		}
		var well, lost []string
		for _, v := range voters {
			if m := d.f.member(v); m != nil && m.answers() && m.Replicas[g.ID].Failure == "" && has(m, g.ID) {
				well = append(well, v)
			} else {
				lost = append(lost, v)
			}
		}
		start := "start the nodes that are away; if their disks are lost, see docs/operating.md, When a majority is lost for good"
		if len(lost) > 0 {
			start = "bring back " + strings.Join(lost, ", ") + ": busbar cluster status shows their states"
		}
		switch majority := len(voters)/2 + 1; {
		case leader == "" && g.ID == 0:
			d.in(0, CodeCatalogLeader, Alarm, start, "has no leader, so entities cannot be changed.")
		case leader == "" && len(well) >= majority && len(voters) > 0:
			d.in(g.ID, CodeNoLeader, Alarm, "look at the logs of "+strings.Join(well, ", ")+" for elections, and at the network between them",
				"has no leader, although %d of %s work.", len(well), counted(len(voters), "voter"))
		case leader == "" || len(well) < majority:
			d.in(g.ID, CodeNoQuorum, Alarm, start, "has no majority: %d of %s work.", len(well), counted(len(voters), "voter"))
		case len(lost) > 0 && len(well) == majority:
			d.in(g.ID, CodeQuorumAtRisk, Alarm, start, "is stopped by one more loss: %d of %s work.", len(well), counted(len(voters), "voter"))
		}
	}
}

func has(m *Member, partition int) bool {
	_, ok := m.Replicas[partition]
	return ok
}

// votersOf returns the voters of a partition without a leader, as the replica of the highest term knows them.
func (d *diagnosis) votersOf(partition int) (voters []string) {
	var term uint64
	for i := range d.f.Members {
		if r, ok := d.f.Members[i].Replicas[partition]; ok && len(r.Voters) > 0 && (voters == nil || r.Term > term) {
			voters, term = r.Voters, r.Term
		}
	}
	return voters
}

// differences finds replicas whose states behind one entry are not the same.
func (d *diagnosis) differences() {
	for _, g := range d.f.Groups {
		sums := map[Digest][]string{} // by index and form
		for i := range d.f.Members {
			for _, x := range d.f.Members[i].Replicas[g.ID].Digests {
				at := Digest{Index: x.Index, Form: x.Form}
				if !slices.Contains(sums[at], x.Sum) {
					sums[at] = append(sums[at], x.Sum)
				}
			}
		}
		for _, at := range slices.SortedFunc(maps.Keys(sums), func(a, b Digest) int { return int(a.Index) - int(b.Index) }) {
			if len(sums[at]) > 1 {
				d.in(g.ID, CodeReplicasDiffer, Alarm, fmt.Sprintf("busbar debug audit --partition %d", g.ID),
					"has replicas that differ behind entry %d.", at.Index)
				break
			}
		}
	}
}

// failures finds replicas that do not serve.
func (d *diagnosis) failures() {
	for i := range d.f.Members {
		m := &d.f.Members[i]
		for _, p := range slices.Sorted(maps.Keys(m.Replicas)) {
			if why := m.Replicas[p].Failure; why != "" {
				d.of(m.ID, CodeReplicaFailed, Alarm, "the group rebuilds it by itself; if it comes again, replace the disk of "+m.ID,
					"the replica of %s on node %s does not serve: %s.", partitionName(p), m.ID, why)
			}
		}
	}
}

// balance finds leaderships that are not where the catalog wants them, although the node that should lead is well.
func (d *diagnosis) balance() {
	away := map[string]int{}
	for _, g := range d.f.Groups {
		leader, _ := d.f.leader(g.ID)
		m := d.f.member(g.Preferred)
		if g.Preferred == "" || leader == "" || leader == g.Preferred || m == nil || !m.answers() || m.leaves() || !has(m, g.ID) ||
			m.Replicas[g.ID].Failure != "" || len(faultsOf(m)) > 0 {
			continue
		}
		away[g.Preferred]++
	}
	for _, node := range slices.Sorted(maps.Keys(away)) {
		d.of(node, CodeUnbalanced, Warning, "busbar cluster rebalance "+node, "node %s should lead %s more, which other nodes lead.",
			node, counted(away[node], "partition"))
	}
}

func faultsOf(m *Member) []Fault {
	if m.Says == nil {
		return nil
	}
	return m.Says.Faults
}

// values returns the nodes by what they say of something, "" left out.
func (d *diagnosis) values(of func(*Node) string) map[string][]string {
	by := map[string][]string{}
	for i := range d.f.Members {
		m := &d.f.Members[i]
		if m.Says == nil {
			continue
		}
		if v := of(m.Says); v != "" {
			by[v] = append(by[v], m.ID)
		}
	}
	return by
}

// spread says which nodes have which value, most nodes first.
func spread(by map[string][]string) string {
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if len(by[a]) != len(by[b]) {
			return len(by[b]) - len(by[a])
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for i, v := range keys {
		slices.Sort(by[v])
		if strings.HasPrefix(v, SecretPrefix) {
			v = fmt.Sprintf("value %d", i+1)
		}
		parts = append(parts, v+" on "+strings.Join(by[keys[i]], ", "))
	}
	return strings.Join(parts, "; ")
}

// versions finds nodes that run different programs.
func (d *diagnosis) versions() {
	if by := d.values(func(n *Node) string { return n.Version }); len(by) > 1 {
		d.of("", CodeVersions, Warning, "go on with the upgrade: install one version on all nodes, and restart them one by one: systemctl restart busbar",
			"the nodes run different versions: %s.", spread(by))
	}
	for i := range d.f.Members {
		if m := &d.f.Members[i]; m.answers() && m.Says == nil {
			d.of(m.ID, CodeSilent, Warning, "install the version of the other nodes there, and restart it: systemctl restart busbar",
				"node %s runs a version that tells nothing of itself.", m.ID)
		}
	}
}

// settings finds those that all nodes should share and do not.
func (d *diagnosis) settings() {
	names := map[string]bool{}
	for i := range d.f.Members {
		if m := &d.f.Members[i]; m.Says != nil {
			for name := range m.Says.Settings {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if by := d.values(func(n *Node) string { return n.Settings[name] }); len(by) > 1 {
			d.of("", CodeSettings, Warning, "give "+name+" one value in the configuration of all nodes, then: systemctl reload busbar, or restart, as docs/configuration.md says",
				"the setting %s differs: %s.", name, spread(by))
		}
	}
}

// authorities finds nodes that trust different authorities.
func (d *diagnosis) authorities() {
	by := d.values(func(n *Node) string {
		if n.Certificate == nil {
			return ""
		}
		return n.Certificate.Authorities
	})
	if len(by) > 1 {
		d.of("", CodeAuthorities, Warning, "put the same authorities into tls-ca of all nodes, then: systemctl reload busbar",
			"the nodes trust different authorities: %s.", spread(by))
	}
}
