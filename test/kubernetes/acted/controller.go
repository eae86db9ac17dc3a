package acted

import (
	"slices"
	"time"
)

// replica is what the StatefulSet controller knows of a pod.
type replica struct {
	ordinal, revision int
	readySince        time.Time // zero: not ready
	terminating       bool
}

// plan is what a StatefulSet asks for.
type plan struct {
	replicas  int
	partition int // ordinals below it keep the current revision
	parallel  bool
	minReady  time.Duration
	// current is the revision that the last finished rollout gave all pods; update is the one of the template.
	current, update int
}

// act is one step of the controller: it creates a pod at a revision, or deletes one in good order.
type act struct {
	create            bool
	ordinal, revision int
}

// available reports whether a pod has been ready for long enough.
func (p plan) available(now time.Time, r replica) bool {
	return !r.terminating && !r.readySince.IsZero() && now.Sub(r.readySince) >= p.minReady
}

// revisionOf is the revision at which a missing pod is made.
func (p plan) revisionOf(ordinal int) int {
	if ordinal < p.partition {
		return p.current
	}
	return p.update
}

// next returns what the controller does now. As in Kubernetes pods are created upwards, and pods that are too many are deleted
// downwards. Then the highest pod of an old revision is deleted. The policy OrderedReady takes one of these steps at a time
// and waits until all pods before are available; Parallel waits in a rollout alone.
func (p plan) next(now time.Time, pods []replica) (acts []act) {
	kept, condemned := map[int]replica{}, []replica{}
	for _, r := range pods {
		if r.ordinal < p.replicas {
			kept[r.ordinal] = r
		} else {
			condemned = append(condemned, r)
		}
	}
	for i := range p.replicas {
		r, ok := kept[i]
		if !ok {
			acts = append(acts, act{create: true, ordinal: i, revision: p.revisionOf(i)})
		}
		if !p.parallel && !(ok && p.available(now, r)) {
			return acts
		}
	}
	slices.SortFunc(condemned, func(a, b replica) int { return b.ordinal - a.ordinal })
	lowest := -1 // of those that are not available
	for _, r := range condemned {
		if !p.available(now, r) {
			lowest = r.ordinal
		}
	}
	for _, r := range condemned {
		if !p.parallel && (r.terminating || !p.available(now, r) && r.ordinal != lowest) {
			return acts
		}
		if !r.terminating {
			acts = append(acts, act{ordinal: r.ordinal, revision: r.revision})
		}
		if !p.parallel {
			return acts
		}
	}
	return append(acts, p.rollout(now, kept)...)
}

// rollout deletes the highest pod of an old revision, if all pods above it are available.
func (p plan) rollout(now time.Time, kept map[int]replica) []act {
	for i := p.replicas - 1; i >= p.partition; i-- {
		r, ok := kept[i]
		if ok && r.revision != p.update && !r.terminating {
			return []act{{ordinal: i, revision: r.revision}}
		}
		if !ok || !p.available(now, r) {
			return nil
		}
	}
	return nil
}

// done reports whether the plan is reached: all pods are there, of their revision and available.
func (p plan) done(now time.Time, pods []replica) bool {
	if len(pods) != p.replicas {
		return false
	}
	for _, r := range pods {
		if r.ordinal >= p.replicas || r.revision != p.revisionOf(r.ordinal) || !p.available(now, r) {
			return false
		}
	}
	return true
}
