package doctor

import (
	"fmt"
	"slices"
)

// Severity is how bad a finding is.
type Severity string

const (
	// Alarm: clients are, or one more fault would be, without service; or what is stored is in danger.
	Alarm Severity = "alarm"
	// Warning: it will become an alarm, or makes the next fault worse.
	Warning Severity = "warning"
)

// Finding is one fault.
type Finding struct {
	// Code names the kind of fault. Scripts use it, so it stays as it is.
	Code      string   `json:"code"`
	Severity  Severity `json:"severity"`
	Node      string   `json:"node,omitempty"`
	Partition *int     `json:"partition,omitempty"`
	// Says is the fault in a sentence, Cure the command or the act that ends it.
	Says string `json:"says"`
	Cure string `json:"cure"`
}

// The kinds of faults.
const (
	CodeUnreachable    = "node-unreachable"
	CodeSilent         = "node-tells-nothing"
	CodeLeft           = "node-left"
	CodeReplaced       = "node-replaced"
	CodeUnregistered   = "node-unregistered"
	CodeNoVersion      = "version-missing"
	CodeNoQuorum       = "quorum-lost"
	CodeNoLeader       = "leader-missing"
	CodeQuorumAtRisk   = "quorum-at-risk"
	CodeCatalogLeader  = "catalog-leader"
	CodeReplicasDiffer = "replicas-differ"
	CodeReplicaFailed  = "replica-failed"
	CodeUnbalanced     = "leaders-unbalanced"
	CodeVersions       = "version-skew"
	CodeSettings       = "settings-differ"
	CodeAuthorities    = "authorities-differ"
	CodeClock          = "clock"
	CodeDiskFull       = "disk-full"
	CodeDiskSlow       = "disk-slow"
	CodeDiskRoom       = "disk-room"
	CodeExpired        = "certificate-refused"
	CodeExpires        = "certificate-expires"
	CodeUnnamed        = "certificate-host"
	CodeCheck          = "check"
)

// Diagnose returns all faults, alarms first, each group in the order of the rules.
func Diagnose(f *Facts) []Finding {
	d := &diagnosis{f: f}
	for _, rule := range []func(){
		d.unreachable, d.unregistered, d.young, d.quorums, d.differences, d.failures, d.checks, d.certificates,
		d.room, d.slow, d.versions, d.settings, d.authorities, d.balance, d.left,
	} {
		rule()
	}
	out := make([]Finding, 0, len(d.found))
	for _, severity := range []Severity{Alarm, Warning} {
		for _, x := range d.found {
			if x.Severity == severity {
				out = append(out, x)
			}
		}
	}
	return out
}

// Passing reports whether a finding may be over in a second or two. A partition has no leader when leaders change. A node that
// has just come is not in the catalog yet, and a new cluster has no version yet.
func Passing(found []Finding) bool {
	passing := []string{CodeNoLeader, CodeCatalogLeader, CodeUnregistered, CodeNoVersion}
	return slices.ContainsFunc(found, func(x Finding) bool { return slices.Contains(passing, x.Code) })
}

// Healthy reports whether no finding is an alarm.
func Healthy(found []Finding) bool { return len(found) == 0 || found[0].Severity != Alarm }

// diagnosis is one run of the rules.
type diagnosis struct {
	f     *Facts
	found []Finding
}

// of adds a finding about a node.
func (d *diagnosis) of(node, code string, severity Severity, cure, format string, args ...any) {
	d.found = append(d.found, Finding{Code: code, Severity: severity, Node: node, Cure: cure, Says: fmt.Sprintf(format, args...)})
}

// in adds a finding about a partition.
func (d *diagnosis) in(partition int, code string, severity Severity, cure, format string, args ...any) {
	d.found = append(d.found, Finding{Code: code, Severity: severity, Partition: &partition, Cure: cure,
		Says: partitionName(partition) + " " + fmt.Sprintf(format, args...)})
}

func partitionName(id int) string {
	if id == 0 {
		return "the catalog"
	}
	return fmt.Sprintf("partition %d", id)
}

// counted is a number of things in words.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
