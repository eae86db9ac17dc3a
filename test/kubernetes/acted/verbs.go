package acted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

// Apply takes what a set declares, as kubectl apply does. Another template is another revision, to which the controller
// brings the pods.
func (k *Kube) Apply(set *manifests.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	spec := &set.Stateful.Spec
	revision := len(k.sets) + 1
	for r, earlier := range k.sets {
		if sameTemplate(earlier, set) { // a template that comes back has the revision that it had
			revision = r
		}
	}
	k.sets[revision], k.set = set, set
	p := plan{replicas: int(*spec.Replicas), parallel: spec.PodManagementPolicy == "Parallel",
		minReady: time.Duration(spec.MinReadySeconds) * time.Second, current: max(k.plan.current, 1), update: revision}
	if u := spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		p.partition = int(*u.Partition)
	}
	k.plan = p
	k.say("applied: %d replicas, revision %d from ordinal %d on", p.replicas, p.update, p.partition)
}

// await looks once a turn until nothing is missing, which missing tells.
func await(ctx context.Context, missing func() error) error {
	for {
		err := missing()
		if err == nil {
			return nil
		}
		if !pause(ctx, turn) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// AwaitRollout waits until every pod is there, of its revision, and has been ready for as long as the manifest asks.
func (k *Kube) AwaitRollout(ctx context.Context) error {
	return await(ctx, func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if pods := k.replicasLocked(); !k.plan.done(time.Now(), pods) {
			return fmt.Errorf("the rollout is not done: %+v", pods)
		}
		return nil
	})
}

// AwaitReady waits until so many pods are ready.
func (k *Kube) AwaitReady(ctx context.Context, count int) error {
	return await(ctx, func() error {
		if ready := k.readyPods(); len(ready) < count {
			return fmt.Errorf("only %q are ready, of %d", ready, count)
		}
		return nil
	})
}

// AwaitWhole waits until each partition has the replicas that the cluster wants.
func (k *Kube) AwaitWhole(ctx context.Context, replicas int) error {
	return await(ctx, func() error { return k.whole(ctx, replicas) })
}

// whole asks every pod that is ready: a node knows the voters of its own partitions alone.
func (k *Kube) whole(ctx context.Context, replicas int) error {
	voters := map[int]int{}
	for _, name := range k.readyPods() {
		p, err := k.pod(name)
		if err != nil {
			return err
		}
		s, err := p.node.Status(ctx)
		if err != nil {
			return err
		}
		for _, part := range s.Partitions {
			if len(part.Differs) > 0 {
				return fmt.Errorf("%s says of partition %d: %q", name, part.ID, part.Differs)
			}
			voters[part.ID] = max(voters[part.ID], len(part.Voters))
		}
	}
	if len(voters) < 2 {
		return fmt.Errorf("only %d partitions are known", len(voters))
	}
	for id, n := range voters {
		if id > 0 && n != replicas {
			return fmt.Errorf("partition %d has %d voters of %d", id, n, replicas)
		}
	}
	return nil
}

func (k *Kube) readyPods() (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if !p.terminating() && !p.since().IsZero() {
			names = append(names, p.name)
		}
	}
	return names
}

// pod returns the pod of a name that is there now.
func (k *Kube) pod(name string) (*pod, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.pods, func(p *pod) bool { return p.name == name && p.machine != nil })
	if i < 0 {
		return nil, fmt.Errorf("there is no pod %s with a machine", name)
	}
	return k.pods[i], nil
}

// Lose deletes a pod at once, as kubectl delete --force --grace-period=0 does. The volume stays.
func (k *Kube) Lose(name string) error {
	p, err := k.pod(name)
	if err != nil {
		return err
	}
	k.say("%s: is lost", name)
	k.mu.Lock()
	k.lastLoss = time.Now()
	k.mu.Unlock()
	p.delete(0)
	<-p.gone
	return nil
}

// lostSince reports whether an operation that began then may have used a connection to a pod that was lost. The rules for
// the Service lead to the pod a little longer.
func (k *Kube) lostSince(began time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.lastLoss.IsZero() && began.Before(k.lastLoss.Add(k.RulesLag+turn))
}

// ReplaceDisk deletes a pod in good order together with its volumes: the next one finds them empty.
func (k *Kube) ReplaceDisk(name string) error {
	p, err := k.pod(name)
	if err != nil {
		return err
	}
	k.say("%s: is deleted with its volumes", name)
	// The claim is protected while the pod uses it, and no new pod is made before it has gone.
	p.mu.Lock()
	p.afterwards = func() error { return k.removeClaims(name) }
	p.mu.Unlock()
	p.delete(p.graceOfTemplate())
	<-p.gone
	return nil
}

// ForgetClaims deletes the volumes of a pod that is not there.
func (k *Kube) ForgetClaims(name string) error {
	if _, err := k.pod(name); err == nil {
		return fmt.Errorf("%s uses its volumes", name)
	}
	return k.removeClaims(name)
}

func (k *Kube) removeClaims(name string) error {
	dirs, err := filepath.Glob(k.claim("*", name))
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Exec runs a command in a pod, as kubectl exec does, with further variables.
func (k *Kube) Exec(ctx context.Context, name string, env []string, command ...string) (string, error) {
	p, err := k.pod(name)
	if err != nil {
		return "", err
	}
	return p.exec(ctx, env, command...)
}

// Restarts is how often the container of a pod was started again.
func (k *Kube) Restarts(name string) (int, error) {
	p, err := k.pod(name)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts, nil
}

// Killed names the pods whose process outlived its grace period.
func (k *Kube) Killed() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.kills)
}

// Logs returns the last bytes of each pod's log.
func (k *Kube) Logs(limit int) string {
	files, _ := filepath.Glob(filepath.Join(k.dir, "*.log"))
	all := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			b = []byte(err.Error())
		}
		all += "== " + filepath.Base(f) + "\n" + string(b[max(0, len(b)-limit):]) + "\n"
	}
	return all
}

// sameTemplate reports whether two sets make the same pods.
func sameTemplate(a, b *manifests.Set) bool {
	return reflect.DeepEqual(a.Stateful.Spec.Template, b.Stateful.Spec.Template)
}

// awaitRevision waits until a pod has a revision.
func (k *Kube) awaitRevision(ctx context.Context, name string, revision int) error {
	return await(ctx, func() error {
		p, err := k.pod(name)
		if err == nil && p.revision != revision {
			err = fmt.Errorf("%s has revision %d", name, p.revision)
		}
		return err
	})
}

// awaitPods waits until there are so many pods.
func (k *Kube) awaitPods(ctx context.Context, count int) error {
	return await(ctx, func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if n := len(k.pods); n != count {
			return fmt.Errorf("there are %d pods", n)
		}
		return nil
	})
}

// awaitRestarts waits until the container of a pod was started again so often.
func (k *Kube) awaitRestarts(ctx context.Context, name string, count int) error {
	return await(ctx, func() error {
		n, err := k.Restarts(name)
		if err == nil && n < count {
			err = fmt.Errorf("%s was restarted %d times", name, n)
		}
		return err
	})
}
