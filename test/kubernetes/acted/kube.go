package acted

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

// turn is how often the controller, the scheduler and the Services look at the pods.
const turn = 50 * time.Millisecond

// Options are what no manifest says.
type Options struct {
	Binary   string            // the program in each image
	Images   map[string]string // other programs, by the name of their image
	Dir      string            // where volumes, logs and files are
	Machines int
	// RulesLag is how long a machine's rules for Services follow the pods late, NamesLag the same of DNS.
	RulesLag, NamesLag time.Duration
	Log                func(format string, args ...any)
}

// Kube is a cluster with one StatefulSet and its Services.
type Kube struct {
	Options
	binary, dir string
	secrets     map[string]map[string][]byte // by name and key
	virtual     map[string]string            // by Service: its address
	resolver    *resolver
	balancers   []*balancer
	stop        chan struct{}
	loop        sync.WaitGroup
	began       time.Time

	mu       sync.Mutex
	set      *manifests.Set // as applied last
	sets     map[int]*manifests.Set
	plan     plan
	pods     []*pod
	machines []*machine
	lastIP   int
	history  history
	kills    []string // pods whose grace period was not enough
	broke    []error
	lastLoss time.Time // of a pod without a stop; zero: none was lost
}

// New begins a cluster for what a set declares, without pods. The set must be one of the chart with a certificate of
// cert-manager: its names are those that the nodes and the Service get.
func New(o Options, set *manifests.Set) (*Kube, error) {
	k := &Kube{Options: o, binary: o.Binary, dir: o.Dir, secrets: map[string]map[string][]byte{}, virtual: map[string]string{},
		sets: map[int]*manifests.Set{}, stop: make(chan struct{}), began: time.Now()}
	for i := range o.Machines {
		k.machines = append(k.machines, &machine{name: fmt.Sprintf("machine-%d", i)})
	}
	if err := errors.Join(k.makeSecrets(set), os.WriteFile(filepath.Join(k.dir, "resolv.conf"), []byte(resolvConf), 0o644)); err != nil {
		return nil, err
	}
	k.Apply(set)
	if err := k.serveServices(); err != nil {
		return nil, err
	}
	k.loop.Go(k.turns)
	return k, nil
}

// makeSecrets makes the two keys, and the certificate that cert-manager would make.
func (k *Kube) makeSecrets(set *manifests.Set) error {
	keys := map[string][]byte{}
	for _, e := range set.Pod().Containers[0].Env {
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			continue
		}
		random := make([]byte, 32)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		keys[e.ValueFrom.SecretKeyRef.Key] = []byte(base64.StdEncoding.EncodeToString(random))
		k.secrets[e.ValueFrom.SecretKeyRef.Name] = keys
	}
	names := set.Certificate.Spec.DNSNames
	if len(names) == 0 {
		return errors.New("the set has no certificate of cert-manager")
	}
	dir := filepath.Join(k.dir, "issuer")
	if err := errors.Join(os.MkdirAll(dir, 0o755), cluster.Certify(dir, names, nil)); err != nil {
		return err
	}
	certificate := map[string][]byte{}
	for key, file := range map[string]string{"tls.crt": "server.pem", "tls.key": "server.key", "ca.crt": "ca.pem"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		certificate[key] = text
	}
	k.secrets[set.Certificate.Spec.SecretName] = certificate
	return nil
}

// serveServices gives each Service but the headless ones an address with its ports, and begins the DNS.
func (k *Kube) serveServices() (err error) {
	next := 1
	for name, service := range k.set.Services {
		if service.Spec.ClusterIP == core.ClusterIPNone {
			continue
		}
		ip := serviceNetwork + strconv.Itoa(next)
		next++
		k.virtual[name] = ip
		if err := addAddress(ip); err != nil {
			return err
		}
		for _, p := range service.Spec.Ports {
			to, err := portOf(&k.set.Pod().Containers[0], p.TargetPort.String())
			if err != nil {
				return err
			}
			k.balancers = append(k.balancers, &balancer{address: net.JoinHostPort(ip, strconv.Itoa(int(p.Port))), port: to,
				conns: map[net.Conn]bool{}, pick: func() []string { return k.seen(k.RulesLag).endpoints[name] }})
		}
	}
	k.resolver, err = newResolver(net.JoinHostPort(nameServer, "53"), func(name string) ([]net.IP, bool) {
		return k.seen(k.NamesLag).lookup(name)
	})
	return err
}

// seen is the view of a part of the cluster that follows late.
func (k *Kube) seen(lag time.Duration) view {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.history.at(time.Now(), lag)
}

// turns is the loop of the cluster.
func (k *Kube) turns() {
	tick := time.NewTicker(turn)
	defer tick.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-tick.C:
		}
		k.step(time.Now())
		for _, b := range k.balancers {
			if err := b.follow(); err != nil {
				k.broken("service at %s: %v", b.address, err)
			}
		}
	}
}

// step lets the controller, the scheduler and the Services look once.
func (k *Kube) step(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = slices.DeleteFunc(k.pods, func(p *pod) bool {
		select {
		case <-p.gone:
			return true
		default:
			return false
		}
	})
	for _, a := range k.plan.next(now, k.replicasLocked()) {
		if a.create {
			k.createLocked(a)
			continue
		}
		for _, p := range k.pods {
			if p.ordinal == a.ordinal && !p.terminating() {
				k.say("%s: is deleted by the controller", p.name)
				p.delete(p.graceOfTemplate())
			}
		}
	}
	if k.plan.partition == 0 && k.plan.done(now, k.replicasLocked()) {
		k.plan.current = k.plan.update
	}
	k.scheduleLocked()
	var places []place
	for _, p := range k.pods {
		if p.machine != nil {
			places = append(places, place{name: p.name, ip: p.ip, ready: !p.since().IsZero(), terminating: p.terminating(),
				labels: p.set.Stateful.Spec.Template.Labels})
		}
	}
	k.history.add(viewOf(now, k.set, k.virtual, places), max(k.RulesLag, k.NamesLag))
}

// createLocked makes a pod, with an address that no pod had before.
func (k *Kube) createLocked(a act) {
	set := k.sets[a.revision]
	k.lastIP++
	p := &pod{name: fmt.Sprintf("%s-%d", set.Stateful.Name, a.ordinal), ordinal: a.ordinal, revision: a.revision, kube: k, set: set,
		container: &set.Pod().Containers[0], ip: fmt.Sprintf("%s%d.%d", podNetwork, k.lastIP/250, 1+k.lastIP%250),
		begin: make(chan struct{}), gone: make(chan struct{}), deleted: make(chan struct{})}
	k.pods = append(k.pods, p)
	k.say("%s: is created at revision %d", p.name, p.revision)
	go p.live()
}

// replicasLocked is what the controller sees of the pods.
func (k *Kube) replicasLocked() (all []replica) {
	for _, p := range k.pods {
		all = append(all, replica{ordinal: p.ordinal, revision: p.revision, readySince: p.since(), terminating: p.terminating()})
	}
	return all
}

// claim returns the directory of a volume, which stays when its pod goes.
func (k *Kube) claim(volume, pod string) string {
	return filepath.Join(k.dir, "claims", volume+"-"+pod)
}

// say tells what happens, with the time since the beginning.
func (k *Kube) say(format string, args ...any) {
	k.Log("%6.2f %s", time.Since(k.began).Seconds(), fmt.Sprintf(format, args...))
}

// broken remembers that the play itself did not go as it should.
func (k *Kube) broken(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	k.say("BROKEN: %v", err)
	go func() { // a caller may hold mu
		k.mu.Lock()
		defer k.mu.Unlock()
		k.broke = append(k.broke, err)
	}()
}

// killed remembers a pod whose process was still there when its grace period was over.
func (k *Kube) killed(name string) {
	k.say("%s: the grace period is over", name)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kills = append(k.kills, name)
}

// Close ends everything at once.
func (k *Kube) Close() error {
	close(k.stop)
	k.loop.Wait()
	k.mu.Lock()
	pods := slices.Clone(k.pods)
	k.mu.Unlock()
	for _, p := range pods {
		p.delete(0)
	}
	for _, p := range pods {
		<-p.gone
	}
	for _, b := range k.balancers {
		b.close()
	}
	k.resolver.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.broke...)
}
