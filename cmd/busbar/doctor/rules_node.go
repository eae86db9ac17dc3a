package doctor

import (
	"strings"
	"time"
)

// expiryNotice is how long before its end a certificate is warned of.
const expiryNotice = 30 * 24 * time.Hour

// The room at which a node is warned of is twice that at which it stores nothing more (partition.DiskLimits).
const (
	roomShare = 0.30
	roomFloor = 4 << 30
)

// checks finds what the nodes found in themselves. A check that another rule tells from the facts of all nodes is left out.
func (d *diagnosis) checks() {
	for i := range d.f.Members {
		m := &d.f.Members[i]
		for _, x := range faultsOf(m) {
			switch x.Name {
			case "catalog-leader", "replicas", "leaders": // told by quorums and failures, of all nodes at once
				if d.told(m.ID, x.Name) {
					continue
				}
				d.check(m.ID, x)
			case "clock":
				d.of(m.ID, CodeClock, Alarm, "set the date of "+m.ID+" and keep it: timedatectl set-ntp true, or chronyc makestep",
					"the date of node %s is wrong: %s.", m.ID, x.Reason)
			case "disk-space":
				d.of(m.ID, CodeDiskFull, Alarm, "make room: receive or purge messages (busbar queue purge QUEUE --yes), or enlarge the disk of "+m.ID,
					"node %s stores nothing more: %s.", m.ID, x.Reason)
			default:
				d.check(m.ID, x)
			}
		}
	}
}

func (d *diagnosis) check(node string, x Fault) {
	d.of(node, CodeCheck, Alarm, "look at the log of "+node+"; the check is told by GET /api/health/checks/"+x.Name,
		"check %s of node %s fails: %s.", x.Name, node, x.Reason)
}

// told reports whether a rule about the cluster has told what a check of a node is about.
func (d *diagnosis) told(node, check string) bool {
	for _, x := range d.found {
		switch x.Code {
		case CodeCatalogLeader:
			if check == "catalog-leader" {
				return true
			}
		case CodeNoQuorum, CodeNoLeader:
			if check == "leaders" {
				return true
			}
		case CodeReplicaFailed:
			if check == "replicas" && x.Node == node {
				return true
			}
		}
	}
	return false
}

// room finds disks that are filling.
func (d *diagnosis) room() {
	for i := range d.f.Members {
		m := &d.f.Members[i]
		if m.Says == nil || m.Says.DiskTotal == 0 || hasFault(m, "disk-space") {
			continue
		}
		if limit := min(uint64(roomShare*float64(m.Says.DiskTotal)), roomFloor); m.Says.DiskFree < limit {
			d.of(m.ID, CodeDiskRoom, Warning, "make room, or enlarge the disk of "+m.ID,
				"the disk of node %s has %d MiB free of %d MiB; at half of %d MiB nothing more is stored.", m.ID,
				m.Says.DiskFree>>20, m.Says.DiskTotal>>20, limit>>20)
		}
	}
}

// slow finds disks that write much slower than those of most.
func (d *diagnosis) slow() {
	for i := range d.f.Members {
		if m := &d.f.Members[i]; m.WriteMean > 0 && m.WriteMean >= d.f.SlowFrom {
			d.of(m.ID, CodeDiskSlow, Warning, "replace the disk of "+m.ID+", or take its work away: busbar cluster drain "+m.ID,
				"the disk of node %s takes %s for a write, much longer than those of most nodes.", m.ID, m.WriteMean.Round(time.Millisecond))
		}
	}
}

func hasFault(m *Member, name string) bool {
	for _, x := range faultsOf(m) {
		if x.Name == name {
			return true
		}
	}
	return false
}

// certificates finds those that are refused, end soon, or are for other hosts.
func (d *diagnosis) certificates() {
	for i := range d.f.Members {
		m := &d.f.Members[i]
		if m.Says == nil || m.Says.Certificate == nil {
			continue
		}
		c := m.Says.Certificate
		renew := "put a renewed certificate into tls-cert and tls-key of " + m.ID + ", then: busbar config check, systemctl reload busbar"
		switch left := c.Expires.Sub(d.f.Now); {
		case c.Fault != "":
			d.of(m.ID, CodeExpired, Alarm, renew, "clients or other nodes refuse the certificate of node %s: %s.", m.ID, c.Fault)
		case c.Expires.IsZero():
		case left <= 0:
			d.of(m.ID, CodeExpired, Alarm, renew, "the certificate of node %s ended at %s.", m.ID, c.Expires.UTC().Format(time.RFC3339))
		case left < expiryNotice:
			d.of(m.ID, CodeExpires, Warning, renew, "the certificate of node %s ends at %s, in %s.", m.ID,
				c.Expires.UTC().Format(time.RFC3339), counted(int(left/(24*time.Hour)), "day"))
		}
		if len(c.Unnamed) > 0 {
			d.of(m.ID, CodeUnnamed, Warning, renew, "the certificate of node %s is not for %s, where clients connect to.", m.ID,
				strings.Join(c.Unnamed, ", "))
		}
	}
}
