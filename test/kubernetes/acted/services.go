package acted

import (
	"net"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

// domain is that of a cluster, space the namespace of everything here.
const (
	domain = "svc.cluster.local"
	space  = "busbar"
)

// place is a pod as Services see it.
type place struct {
	name               string
	ip                 string
	ready, terminating bool
	labels             map[string]string
}

// view is what Services and DNS hold at a moment.
type view struct {
	at        time.Time
	endpoints map[string][]string // by Service: addresses that take connections
	names     map[string][]string // by full name with the final dot: addresses
}

// viewOf makes the endpoints and names of all Services. Each has its address in virtual unless it is headless.
func viewOf(at time.Time, set *manifests.Set, virtual map[string]string, places []place) view {
	v := view{at: at, endpoints: map[string][]string{}, names: map[string][]string{}}
	for name, service := range set.Services {
		full := name + "." + space + "." + domain + "."
		chosen := slices.DeleteFunc(slices.Clone(places), func(p place) bool { return !selects(&service, p) })
		v.endpoints[name] = endpoints(&service, chosen)
		if service.Spec.ClusterIP != core.ClusterIPNone {
			v.names[full] = []string{virtual[name]}
			continue
		}
		v.names[full] = v.endpoints[name]
		for _, p := range chosen {
			if set.Stateful.Spec.ServiceName == name && slices.Contains(v.endpoints[name], p.ip) {
				v.names[p.name+"."+full] = []string{p.ip}
			}
		}
	}
	return v
}

// selects reports whether a pod belongs to a Service.
func selects(s *core.Service, p place) bool {
	for k, want := range s.Spec.Selector {
		if p.labels[k] != want {
			return false
		}
	}
	return p.ip != "" && len(s.Spec.Selector) > 0
}

// endpoints are the addresses of the ready pods that do not end. As in Kubernetes, if there are none, those that end and
// are still ready serve on.
func endpoints(s *core.Service, places []place) (ready []string) {
	var ends []string
	for _, p := range places {
		switch {
		case s.Spec.PublishNotReadyAddresses, p.ready && !p.terminating:
			ready = append(ready, p.ip)
		case p.ready:
			ends = append(ends, p.ip)
		}
	}
	if ready == nil {
		return ends
	}
	return ready
}

// history has the newest views. They are seen late, as in a cluster: the rules of a machine and the answers of DNS follow
// the pods after a while.
type history struct{ views []view }

// add appends a view and forgets those that nobody can ask for any more.
func (h *history) add(v view, latest time.Duration) {
	h.views = append(h.views, v)
	for len(h.views) > 1 && v.at.Sub(h.views[1].at) > latest {
		h.views = h.views[1:]
	}
}

// at returns the newest view that is as old as the lag. If none is, it is empty.
func (h *history) at(now time.Time, lag time.Duration) view {
	for i := len(h.views) - 1; i >= 0; i-- {
		if now.Sub(h.views[i].at) >= lag {
			return h.views[i]
		}
	}
	return view{}
}

// lookup returns the addresses of a name, and whether the name exists.
func (v view) lookup(name string) (ips []net.IP, ok bool) {
	addresses, ok := v.names[strings.ToLower(name)]
	for _, a := range addresses {
		ips = append(ips, net.ParseIP(a))
	}
	return ips, ok
}
