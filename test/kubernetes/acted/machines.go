package acted

import (
	"context"
	"fmt"
	"time"

	policy "k8s.io/api/policy/v1"
)

// evictPause is how long kubectl drain waits after a refused eviction.
const evictPause = 5 * time.Second

// machine is a node of Kubernetes. One pod of the set may run there at a time, because the manifest's anti-affinity keeps
// two pods from sharing a host name.
type machine struct {
	name     string
	cordoned bool // guarded by mu of the Kube
}

// scheduleLocked gives each pending pod a free machine, and starts it.
func (k *Kube) scheduleLocked() {
	taken := map[*machine]bool{}
	for _, p := range k.pods {
		if p.machine != nil {
			taken[p.machine] = true
		}
	}
	for _, p := range k.pods {
		if p.machine != nil || p.terminating() {
			continue
		}
		for _, m := range k.machines {
			if m.cordoned || taken[m] && k.apart() {
				continue
			}
			p.machine, taken[m] = m, true
			if err := p.furnish(); err != nil {
				k.broken("%s: %v", p.name, err)
				return
			}
			k.say("%s: on %s with address %s", p.name, m.name, p.ip)
			close(p.begin)
			break
		}
	}
}

// apart reports whether the manifest keeps two pods from one machine.
func (k *Kube) apart() bool {
	a := k.set.Pod().Affinity
	if a == nil || a.PodAntiAffinity == nil {
		return false
	}
	for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey == "kubernetes.io/hostname" {
			return true
		}
	}
	return false
}

// standing is what the disruption budget counts.
type standing struct{ expected, healthy int }

// mayEvict reports whether a disruption budget allows that a pod is evicted. healthy says whether that pod is ready.
func mayEvict(b *policy.PodDisruptionBudget, s standing, healthy bool) (bool, error) {
	if b.Spec.MaxUnavailable == nil || b.Spec.MinAvailable != nil {
		return false, fmt.Errorf("disruption budget %s: only maxUnavailable is played", b.Name)
	}
	desired := s.expected - b.Spec.MaxUnavailable.IntValue()
	if !healthy {
		always := b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policy.AlwaysAllow
		return always || s.healthy >= desired, nil
	}
	return s.healthy > desired, nil
}

// evict deletes a pod in good order if the budget allows it.
func (k *Kube) evict(p *pod) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := standing{expected: k.plan.replicas}
	for _, other := range k.pods {
		if !other.terminating() && !other.since().IsZero() {
			s.healthy++
		}
	}
	may, err := mayEvict(&k.set.Budget, s, !p.since().IsZero())
	if err != nil || !may {
		return false, err
	}
	k.say("%s: is evicted", p.name)
	p.delete(p.graceOfTemplate())
	return true, nil
}

// Drain empties a machine as kubectl drain does. No pod comes to it any more, and its pods are evicted as soon as the
// budget allows it. Drain returns how often an eviction was refused, when the pods have gone.
func (k *Kube) Drain(ctx context.Context, name string) (refused int, err error) {
	k.mu.Lock()
	var pods []*pod
	for _, m := range k.machines {
		m.cordoned = m.cordoned || m.name == name
	}
	for _, p := range k.pods {
		if p.machine != nil && p.machine.name == name {
			pods = append(pods, p)
		}
	}
	k.mu.Unlock()
	k.say("drain of %s", name)
	for _, p := range pods {
		for {
			done, err := k.evict(p)
			if err != nil {
				return refused, err
			}
			if done {
				break
			}
			refused++
			if !pause(ctx, evictPause) {
				return refused, fmt.Errorf("drain of %s: %w", name, ctx.Err())
			}
		}
		select {
		case <-p.gone:
		case <-ctx.Done():
			return refused, fmt.Errorf("drain of %s: %s does not end: %w", name, p.name, ctx.Err())
		}
	}
	return refused, nil
}

// Uncordon lets pods come to a machine again.
func (k *Kube) Uncordon(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.machines {
		m.cordoned = m.cordoned && m.name != name
	}
}
