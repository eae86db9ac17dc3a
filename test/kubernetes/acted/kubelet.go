package acted

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
	"github.com/busbar-mq/busbar/test/namespaces"
)

// leastGrace is what the kubelet gives a process after preStop even if the grace period is over.
const leastGrace = 2 * time.Second

// pod is one life of a pod: it ends when its place in the set is free for the next one.
type pod struct {
	name              string
	ordinal, revision int
	kube              *Kube
	set               *manifests.Set // of its revision
	container         *core.Container
	machine           *machine
	ip                string
	node              *cluster.Node // its container

	begin chan struct{} // closed when it has a machine and its volume
	gone  chan struct{} // closed when nothing of it is left

	mu         sync.Mutex
	readySince time.Time
	deleted    chan struct{} // closed by delete
	grace      time.Duration // from the deletion on; set before deleted is closed
	ended      *os.ProcessState
	restarts   int
	afterwards func() error // with its volumes, when nothing of the pod is left; nil: nothing
}

// terminating reports whether the pod was deleted.
func (p *pod) terminating() bool {
	select {
	case <-p.deleted:
		return true
	default:
		return false
	}
}

// delete begins the end of the pod, as the API server does. A second call with less grace shortens nothing here.
func (p *pod) delete(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.deleted:
	default:
		p.grace = grace
		close(p.deleted)
	}
}

// setReady keeps the moment from which on the pod is ready.
func (p *pod) setReady(ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !ready:
		p.readySince = time.Time{}
	case p.readySince.IsZero():
		p.readySince = time.Now()
	}
}

// since returns from when on the pod is ready; zero: it is not.
func (p *pod) since() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readySince
}

// live is the kubelet's work for one pod. It begins when the pod has a machine.
func (p *pod) live() {
	defer close(p.gone)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.afterwards == nil {
			return
		}
		if err := p.afterwards(); err != nil {
			p.kube.broken("%s: %v", p.name, err)
		}
	}()
	select {
	case <-p.begin:
	case <-p.deleted:
		return
	}
	ns, veth := p.name, fmt.Sprintf("pod%d", p.ordinal)
	if err := p.kube.plug(ns, veth, p.ip); err != nil {
		p.kube.broken("%s: no network: %v", p.name, err)
		return
	}
	defer func() {
		if err := namespaces.Run("ip", "netns", "del", ns); err != nil {
			p.kube.broken("%s: %v", p.name, err)
		}
		_ = namespaces.Run("ip", "link", "del", veth) // it may have gone with the namespace
	}()
	p.containers()
}

// containers runs one container after the other until the pod is deleted.
func (p *pod) containers() {
	var pauses backoff
	for {
		began := time.Now()
		if err := p.node.Start(); err != nil {
			p.kube.broken("%s: %v", p.name, err)
			return
		}
		why := p.watch()
		p.setReady(false)
		if why == endOfPod {
			return
		}
		p.mu.Lock()
		p.restarts++
		p.mu.Unlock()
		wait := pauses.next(time.Since(began))
		p.kube.say("%s: the container ended (%s), the next one comes in %s", p.name, p.exit(), wait)
		select {
		case <-time.After(wait):
		case <-p.deleted:
			return
		}
	}
}

// ending is why a container is watched no longer.
type ending int

const (
	endOfContainer ending = iota // it ended by itself or by its liveness probe; it is started again
	endOfPod                     // the pod was deleted, and its container has ended
)

// watch probes a container until it has ended.
func (p *pod) watch() ending {
	probing, stop := context.WithCancel(context.Background())
	defer stop()
	unwell := make(chan error, 1)
	workers, err := p.probes(probing, unwell)
	if err != nil {
		p.kube.broken("%s: %v", p.name, err)
		return endOfPod
	}
	defer workers.Wait()
	defer stop()
	select {
	case <-p.node.Done():
		return endOfContainer
	case err := <-unwell:
		p.kube.say("%s: is killed: %v", p.name, err)
		p.end(p.graceOfTemplate())
		return endOfContainer
	case <-p.deleted:
		p.end(p.grace)
		return endOfPod
	}
}

// probes starts the probes of a container. The other two begin when the startup probe has succeeded.
func (p *pod) probes(ctx context.Context, unwell chan<- error) (*sync.WaitGroup, error) {
	c := p.container
	startup, err1 := newProbe(c.StartupProbe, c, p.ip, false)
	liveness, err2 := newProbe(c.LivenessProbe, c, p.ip, true)
	readiness, err3 := newProbe(c.ReadinessProbe, c, p.ip, false)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	kill := func(what string) func(bool, error) {
		return func(ok bool, reason error) {
			if ok || p.terminating() { // the kubelet looks at neither while a pod ends
				return
			}
			select {
			case unwell <- fmt.Errorf("%s: %w", what, reason):
			default:
			}
		}
	}
	var workers sync.WaitGroup
	workers.Go(func() {
		starting, started := context.WithCancel(ctx)
		defer started()
		startup.run(starting, func(ok bool, reason error) {
			if ok {
				started()
				return
			}
			kill("startup probe")(ok, reason)
		})
		if !startup.verdict.ok {
			return
		}
		workers.Go(func() { liveness.run(ctx, kill("liveness probe")) })
		readiness.run(ctx, func(ok bool, reason error) {
			p.setReady(ok)
			p.kube.say("%s: ready is %t %v", p.name, ok, reason)
		})
	})
	return &workers, nil
}

// graceOfTemplate is the grace period of the manifest.
func (p *pod) graceOfTemplate() time.Duration {
	return time.Duration(*p.set.Pod().TerminationGracePeriodSeconds) * time.Second
}

// end ends the container as the kubelet does: preStop, SIGTERM, and SIGKILL when the grace period is over. Without a grace
// period it is SIGKILL alone.
func (p *pod) end(grace time.Duration) {
	began := time.Now()
	if grace > 0 {
		p.preStop(grace)
		left := max(grace-time.Since(began), leastGrace)
		_ = p.node.Signal(syscall.SIGTERM)
		select {
		case <-p.node.Done():
		case <-time.After(left):
			p.kube.killed(p.name)
		}
	}
	p.node.Kill()
	p.kube.say("%s: ended after %s (%s)", p.name, time.Since(began).Round(10*time.Millisecond), p.exit())
}

// preStop runs the hook, which may take the whole grace period.
func (p *pod) preStop(grace time.Duration) {
	hooks := p.container.Lifecycle
	if hooks == nil || hooks.PreStop == nil {
		return
	}
	switch hook := hooks.PreStop; {
	case hook.Sleep != nil:
		select {
		case <-p.node.Done():
		case <-time.After(min(time.Duration(hook.Sleep.Seconds)*time.Second, grace)):
		}
	case hook.Exec != nil:
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if out, err := p.exec(ctx, nil, hook.Exec.Command...); err != nil {
			p.kube.say("%s: preStop: %v: %s", p.name, err, out)
		}
	}
}

// Started and Ended make the pod the Watcher of its container. The namespace of processes ends the container with the
// play, so the first has nothing to do.
func (p *pod) Started(int) error { return nil }

// Ended keeps how the container ended.
func (p *pod) Ended(state *os.ProcessState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = state
}

// exit tells how the last container ended.
func (p *pod) exit() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		return "it runs"
	}
	return p.ended.String()
}
