package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sound is a cluster of three nodes in which nothing is wrong. Partition 1 is led by n1, 2 by n2, 3 by n3, the catalog by
// n1. A fourth node left in good order, and was forgotten.
func sound() *Facts {
	f := &Facts{Now: now, SlowFrom: 100 * time.Millisecond, Groups: []Group{{ID: 0}, {ID: 1, Preferred: "n1"}, {ID: 2, Preferred: "n2"}, {ID: 3, Preferred: "n3"}}}
	for i := range 3 {
		m := Member{ID: fmt.Sprintf("n%d", i+1), State: "alive", Holds: true, Replicas: map[int]Replica{}}
		for p := range 4 {
			m.Replicas[p] = Replica{Leading: p == i+1 || p == 0 && i == 0, Term: 7, Voters: []string{"n1", "n2", "n3"},
				Digests: []Digest{{Index: 90, Form: "a", Sum: "11"}, {Index: 100, Form: "a", Sum: "22"}}}
		}
		m.Says = &Node{Version: "v1.2.0", UptimeMillis: 1000, DiskFree: 60 << 30, DiskTotal: 100 << 30,
			Certificate: &Certificate{Expires: now.Add(90 * 24 * time.Hour), Authorities: "[aa]"},
			Settings:    map[string]string{"tier": "premium", "root-key": SecretPrefix + "0123"}}
		f.Members = append(f.Members, m)
	}
	return f
}

func (f *Facts) stop(id, state string) *Member {
	m := f.member(id)
	m.State, m.Problem, m.Replicas, m.Says = state, "it is "+state, nil, nil
	return m
}

func (f *Facts) change(id string, partition int, how func(*Replica)) {
	m := f.member(id)
	r := m.Replicas[partition]
	how(&r)
	m.Replicas[partition] = r
}

// cases provoke each fault in sound facts.
var cases = []struct {
	name    string
	provoke func(*Facts)
	want    []string // severity, code, what is said, "=>" and the beginning of the cure
}{
	{"nothing", func(*Facts) {}, nil},
	{"a node of three that is away", func(f *Facts) { f.stop("n3", "dead"); f.lead(3, "n1") }, []string{
		"alarm node-unreachable node n3 is away, and the cluster wants replicas there. => start it: systemctl start busbar; if it never comes back: busbar cluster forget n3",
		"alarm quorum-at-risk the catalog is stopped by one more loss: 2 of 3 voters work. => bring back n3",
		"alarm quorum-at-risk partition 1 is stopped by one more loss: 2 of 3 voters work. => bring back n3",
		"alarm quorum-at-risk partition 2 is stopped by one more loss: 2 of 3 voters work. => bring back n3",
		"alarm quorum-at-risk partition 3 is stopped by one more loss: 2 of 3 voters work. => bring back n3",
	}},
	{"two nodes of three that are away", func(f *Facts) {
		f.Groups = f.Groups[:2]
		f.stop("n3", "dead")
		f.stop("n2", "dead")
		f.change("n1", 0, func(r *Replica) { r.Leading = false })
		f.change("n1", 1, func(r *Replica) { r.Leading = false })
	}, []string{
		"alarm node-unreachable node n2 is away, and the cluster wants replicas there. => start it",
		"alarm node-unreachable node n3 is away, and the cluster wants replicas there. => start it",
		"alarm catalog-leader the catalog has no leader, so entities cannot be changed. => bring back n2, n3",
		"alarm quorum-lost partition 1 has no majority: 1 of 3 voters work. => bring back n2, n3",
	}},
	{"a node that is there and does not answer", func(f *Facts) {
		f.Groups = nil
		f.stop("n2", "alive").Problem = "context deadline exceeded"
	}, []string{"alarm node-unreachable node n2 is there and does not answer: context deadline exceeded. => look at the network"}},
	{"a node that has just come", func(f *Facts) { f.member("n2").Unregistered = true }, []string{
		"alarm node-unregistered node n2 is there, and the catalog does not have it yet. => wait some seconds",
	}},
	{"a new cluster", func(f *Facts) { f.Young = true }, []string{
		"alarm version-missing the cluster has no version yet, so no node can be drained, removed or forgotten. => wait some seconds",
	}},
	{"old programs that are exchanged", func(f *Facts) { f.Young = true; f.member("n2").Says.Version = "v1.3.0" }, []string{
		"warning version-skew the nodes run different versions: v1.2.0 on n1, n3; v1.3.0 on n2. => go on with the upgrade",
	}},
	{"old programs that tell nothing", func(f *Facts) { f.Young = true; f.member("n2").Says = nil }, []string{
		"warning node-tells-nothing node n2 runs a version that tells nothing of itself. => install the version of the other nodes",
	}},
	{"a node that came, and went before it was registered", func(f *Facts) {
		f.Members = append(f.Members, Member{ID: "n4", State: "dead", Problem: "it is dead", Unregistered: true})
	}, []string{"warning node-unreachable node n4 is away and holds nothing. => start it"}},
	{"a node that is away and holds nothing", func(f *Facts) {
		f.Members = append(f.Members, Member{ID: "n4", State: "unknown", Problem: "it is unknown"})
	}, []string{"warning node-unreachable node n4 is away and holds nothing. => start it"}},
	{"a node that left and is listed", func(f *Facts) {
		f.Members = append(f.Members, Member{ID: "n4", State: "left", Problem: "it is left"})
	}, []string{"warning node-left node n4 left in good order, holds nothing and is still listed. => start it again: systemctl start busbar; if it is to stay away: busbar cluster forget n4"}},
	{"a node whose disk was replaced", func(f *Facts) {
		f.Members = append(f.Members, Member{ID: "7c00da42", State: "unknown", Successor: "n3", Problem: "it is unknown"})
	}, []string{"warning node-replaced node 7c00da42 has the name of n3, which lives and has its places; it is still listed. => busbar cluster forget 7c00da42"}},
	{"a node whose disk was replaced, and that has places still", func(f *Facts) {
		f.Members = append(f.Members, Member{ID: "7c00da42", State: "dead", Successor: "n3", Holds: true, Problem: "it is dead"})
	}, []string{"alarm node-unreachable node 7c00da42 is away, and the cluster wants replicas there."}},
	{"a node that is being forgotten", func(f *Facts) {
		f.Members = append(f.Members, Member{ID: "n4", State: "dead", Wish: "gone", Problem: "it is dead"})
	}, nil},
	{"a catalog without a leader", func(f *Facts) { f.change("n1", 0, func(r *Replica) { r.Leading = false }) }, []string{
		"alarm catalog-leader the catalog has no leader, so entities cannot be changed. => start the nodes that are away"}},
	{"a leader that was deposed and does not know", func(f *Facts) {
		f.change("n3", 1, func(r *Replica) { r.Leading, r.Term, r.Voters = true, 6, []string{"n3"} })
	}, nil},
	{"replicas that differ behind the newest entry", func(f *Facts) {
		f.change("n3", 2, func(r *Replica) {
			r.Digests = []Digest{{Index: 90, Form: "a", Sum: "11"}, {Index: 100, Form: "a", Sum: "23"}}
		})
	}, []string{"alarm replicas-differ partition 2 has replicas that differ behind entry 100. => busbar debug audit --partition 2"}},
	{"digests of other forms and entries", func(f *Facts) {
		f.change("n3", 2, func(r *Replica) {
			r.Digests = []Digest{{Index: 90, Form: "b", Sum: "12"}, {Index: 95, Form: "a", Sum: "23"}}
		})
	}, nil},
	{"a replica that does not serve", func(f *Facts) {
		f.change("n3", 2, func(r *Replica) { r.Failure = "write log: input/output error" })
	}, []string{
		"alarm quorum-at-risk partition 2 is stopped by one more loss: 2 of 3 voters work. => bring back n3",
		"alarm replica-failed the replica of partition 2 on node n3 does not serve: write log: input/output error. => the group rebuilds it",
	}},
	{"leaders that are elsewhere", func(f *Facts) { f.lead(3, "n1"); f.lead(2, "n1") }, []string{
		"warning leaders-unbalanced node n2 should lead 1 partition more, which other nodes lead. => busbar cluster rebalance n2",
		"warning leaders-unbalanced node n3 should lead 1 partition more, which other nodes lead. => busbar cluster rebalance n3"}},
	{"leaders of a node that drains", func(f *Facts) { f.lead(3, "n1"); f.member("n3").Wish = "drain" }, nil},
	{"two versions", func(f *Facts) { f.member("n2").Says.Version = "v1.1.9" }, []string{
		"warning version-skew the nodes run different versions: v1.2.0 on n1, n3; v1.1.9 on n2. => go on with the upgrade"}},
	{"a version that tells nothing", func(f *Facts) { f.member("n2").Says = nil }, []string{
		"warning node-tells-nothing node n2 runs a version that tells nothing of itself. => install the version of the other nodes"}},
	{"settings that differ", func(f *Facts) { f.member("n1").Says.Settings["tier"] = "standard" }, []string{
		"warning settings-differ the setting tier differs: premium on n2, n3; standard on n1. => give tier one value"}},
	{"a secret that differs is not told", func(f *Facts) { f.member("n1").Says.Settings["root-key"] = SecretPrefix + "9999" }, []string{
		"warning settings-differ the setting root-key differs: value 1 on n2, n3; value 2 on n1. => give root-key one value"}},
	{"authorities that differ", func(f *Facts) { f.member("n1").Says.Certificate.Authorities = "[bb]" }, []string{
		"warning authorities-differ the nodes trust different authorities: [aa] on n2, n3; [bb] on n1. => put the same authorities"}},
	{"a certificate that ended", func(f *Facts) { f.member("n1").Says.Certificate.Expires = now.Add(-time.Hour) }, []string{
		"alarm certificate-refused the certificate of node n1 ended at 2026-03-01T11:00:00Z. => put a renewed certificate"}},
	{"a certificate that others refuse", func(f *Facts) { f.member("n1").Says.Certificate.Fault = "it does not fit ca.pem" }, []string{
		"alarm certificate-refused clients or other nodes refuse the certificate of node n1: it does not fit ca.pem. => put a renewed certificate"}},
	{"a certificate that ends soon", func(f *Facts) { f.member("n1").Says.Certificate.Expires = now.Add(9*24*time.Hour + time.Hour) }, []string{
		"warning certificate-expires the certificate of node n1 ends at 2026-03-10T13:00:00Z, in 9 days. => put a renewed certificate"}},
	{"a certificate for other hosts", func(f *Facts) { f.member("n1").Says.Certificate.Unnamed = []string{"a.example.net"} }, []string{
		"warning certificate-host the certificate of node n1 is not for a.example.net, where clients connect to. => put a renewed certificate"}},
	{"a node without certificates", func(f *Facts) { f.member("n1").Says.Certificate = nil }, nil},
	{"a wrong clock", func(f *Facts) { f.fail("n2", "clock", "9s ahead") }, []string{
		"alarm clock the date of node n2 is wrong: 9s ahead. => set the date of n2"}},
	{"a full disk", func(f *Facts) {
		f.fail("n2", "disk-space", "disk is nearly full")
		f.member("n2").Says.DiskFree = 1 << 30
	}, []string{"alarm disk-full node n2 stores nothing more: disk is nearly full. => make room: receive or purge"}},
	{"a large disk that is filling", func(f *Facts) { f.member("n2").Says.DiskFree = 3 << 30 }, []string{
		"warning disk-room the disk of node n2 has 3072 MiB free of 102400 MiB; at half of 4096 MiB nothing more is stored. => make room"}},
	{"a small disk that is filling", func(f *Facts) { f.member("n2").Says.DiskFree, f.member("n2").Says.DiskTotal = 200<<20, 1000<<20 }, []string{
		"warning disk-room the disk of node n2 has 200 MiB free of 1000 MiB; at half of 300 MiB nothing more is stored. => make room"}},
	{"a disk that is slow", func(f *Facts) { f.write(4*time.Millisecond, 30*time.Millisecond, 400*time.Millisecond) }, []string{
		"warning disk-slow the disk of node n3 takes 400ms for a write, much longer than those of most nodes. => replace the disk of n3"}},
	{"disks that are not slow yet, and one that is not known", func(f *Facts) { f.write(99*time.Millisecond, 0, 90*time.Millisecond) }, nil},
	{"a check that no rule knows", func(f *Facts) { f.fail("n2", "node-name", "another node has the name") }, []string{
		"alarm check check node-name of node n2 fails: another node has the name. => look at the log of n2"}},
	{"checks that the facts explain", func(f *Facts) {
		f.Groups = f.Groups[:2]
		f.change("n1", 0, func(r *Replica) { r.Leading = false })
		f.change("n1", 1, func(r *Replica) { r.Leading = false })
		f.fail("n2", "catalog-leader", "no leader")
		f.fail("n2", "leaders", "no leader")
	}, []string{
		"alarm catalog-leader the catalog has no leader, so entities cannot be changed. => start the nodes that are away",
		"alarm leader-missing partition 1 has no leader, although 3 of 3 voters work. => look at the logs of n1, n2, n3",
	}},
	{"a check that only its node knows", func(f *Facts) { f.fail("n2", "leaders", "no leader") }, []string{
		"alarm check check leaders of node n2 fails: no leader. => look at the log of n2"}},
}

// lead has another node lead a partition.
func (f *Facts) lead(partition int, id string) {
	for i := range f.Members {
		if m := &f.Members[i]; m.Replicas != nil {
			f.change(m.ID, partition, func(r *Replica) { r.Leading = m.ID == id })
		}
	}
}

func (f *Facts) write(means ...time.Duration) {
	for i, mean := range means {
		f.Members[i].WriteMean = mean
	}
}

func (f *Facts) fail(id, check, reason string) {
	m := f.member(id)
	m.Says.Faults = append(m.Says.Faults, Fault{Name: check, Reason: reason})
}

func TestEachFaultIsToldWithItsCure(t *testing.T) {
	told := map[string]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := sound()
			c.provoke(f)
			found := Diagnose(f)
			for i, x := range found {
				told[x.Code] = true
				got := fmt.Sprintf("%s %s %s => %s", x.Severity, x.Code, x.Says, x.Cure)
				if i >= len(c.want) || !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("finding %d: %s", i, got)
				}
			}
			if len(found) != len(c.want) {
				t.Errorf("%d findings, want %d", len(found), len(c.want))
			}
			if passing := slices.ContainsFunc(c.want, func(w string) bool {
				return strings.Contains(w, "has no leader") || strings.Contains(w, "does not have it yet") ||
					strings.Contains(w, "has no version yet")
			}); passing != Passing(found) {
				t.Errorf("passing: %v", !passing)
			}
			wantHealthy := !slices.ContainsFunc(c.want, func(w string) bool { return strings.HasPrefix(w, "alarm") })
			if Healthy(found) != wantHealthy {
				t.Errorf("healthy: %v, want %v", !wantHealthy, wantHealthy)
			}
		})
	}
	for _, code := range []string{CodeUnreachable, CodeSilent, CodeLeft, CodeReplaced, CodeNoQuorum, CodeNoLeader, CodeQuorumAtRisk, CodeCatalogLeader,
		CodeReplicasDiffer, CodeReplicaFailed, CodeUnbalanced, CodeVersions, CodeSettings, CodeAuthorities, CodeClock,
		CodeDiskFull, CodeDiskRoom, CodeDiskSlow, CodeExpired, CodeExpires, CodeUnnamed, CodeCheck} {
		if !told[code] {
			t.Errorf("no case provokes %s", code)
		}
	}
}
