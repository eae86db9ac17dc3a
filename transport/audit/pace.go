package audit

import (
	"net/netip"
	"sync"
	"time"
)

// The bounds of refusals. One host, or one network of IPv6, has a burst and then a line in ten seconds. All hosts together
// have a line a second: some 50 MB in a day.
const (
	hostBurst = 20
	hostPause = 10 * time.Second
	allBurst  = 200
	allPause  = time.Second
	// maxHosts bounds the hosts that are remembered for that.
	maxHosts = 4096
	// hostBits is how much of an address of IPv6 names its host: the rest is the host's own to choose.
	hostBits = 64
)

// pace decides which refusals have a line.
type pace struct {
	mu    sync.Mutex
	all   time.Time                  // when the bucket of all hosts will be full again
	hosts map[netip.Prefix]time.Time // and those of each
}

// may reports whether a refusal of a remote address has a line at that time, and counts it if it has.
func (p *pace) may(remote string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	host := hostOf(remote)
	all, ok := next(p.all, now, allPause, allBurst)
	if !ok {
		return false
	}
	own, known := p.hosts[host]
	if own, ok = next(own, now, hostPause, hostBurst); !ok {
		return false
	}
	if !known && len(p.hosts) >= maxHosts {
		p.forgetLocked(now)
	}
	if known || len(p.hosts) < maxHosts { // else the bound of all hosts is the only one
		p.hosts[host] = own
	}
	p.all = all
	return true
}

// next returns when a bucket will be full again after one more line, and whether it has room for that.
func next(full, now time.Time, pause time.Duration, burst int) (time.Time, bool) {
	if full.Before(now) {
		full = now
	}
	full = full.Add(pause)
	return full, full.Sub(now) <= time.Duration(burst)*pause
}

// forgetLocked forgets hosts whose buckets are full.
func (p *pace) forgetLocked(now time.Time) {
	for host, full := range p.hosts {
		if full.Before(now) {
			delete(p.hosts, host)
		}
	}
}

// hostOf is the host of an address with a port; all that are none are one host.
func hostOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = hostBits
	}
	p, err := addr.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
