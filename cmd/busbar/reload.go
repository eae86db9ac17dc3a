package main

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/notify"
	"github.com/busbar-mq/busbar/fsm"
)

// reloader reads the configuration again while the node runs, and puts into effect what can change without a restart.
// It reads and checks everything first, so a broken file changes nothing.
type reloader struct {
	n   *node
	log hclog.Logger

	running atomic.Pointer[Config]  // in effect now; never changed in place
	manager atomic.Pointer[service] // nil before the node serves
	// watch knows the files as they were when the node began to open: it may wait long for its cluster. Only run uses it.
	watch *fileWatch

	mu        sync.Mutex        // one reload at a time
	documents map[string][]byte // keys of issuers that are files, by issuer; nil before they were read
	gossip    [][]byte          // keys of gossip

	applied, refused atomic.Uint64
	lastFailed       atomic.Bool
	lastSuccess      atomic.Int64 // Unix time in milliseconds; the start counts
}

// reloaded is what one reload did.
type reloaded struct {
	// Changed are settings that are in effect now, or whose files are. Restart are those that wait for a restart.
	Changed []string `json:"changed"`
	Restart []string `json:"needsRestart"`
}

func newReloader(n *node) *reloader {
	r := &reloader{n: n, log: n.log.Named("configuration")}
	running := n.cfg
	r.running.Store(&running)
	r.watch = newFileWatch(r.watched)
	r.lastSuccess.Store(time.Now().UnixMilli())
	return r
}

// run reloads whenever it is asked to, and when a file has changed, until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan struct{}) {
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	for {
		select {
		case <-hangups:
			r.watch.reread(func() { _, _ = r.reload(ctx, "signal") }) // the log has it
		case <-look.C:
			if r.watch.changed() {
				r.watch.reread(func() { _, _ = r.reload(ctx, "changed files") })
			}
		case <-ctx.Done():
			return
		}
	}
}

// watched are the files that a reload would read.
func (r *reloader) watched() []string {
	now := r.running.Load()
	files := []string{r.n.cfg.file, now.TLSCert, now.TLSKey, now.TLSCA, now.GossipKeysFile}
	for _, i := range now.Issuers {
		if i.isFile() {
			files = append(files, i.Keys)
		}
	}
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

// reload reads everything, checks it, and then replaces what has changed. why stands in the log.
func (r *reloader) reload(ctx context.Context, why string) (reloaded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if manager := r.manager.Load(); manager != nil {
		manager.say(notify.Reloading()...)
		defer manager.say(notify.Ready, notify.Status(serving))
	}
	r.n.audit.Reopen() // whatever the configuration says: logrotate has moved the file away
	done, err := r.reloadLocked(ctx)
	if why != byRequest {
		r.n.auditReload(why, done, err)
	}
	if err != nil {
		r.refused.Add(1)
		r.lastFailed.Store(true)
		r.log.Error("the configuration was not reloaded, and nothing has changed", "by", why, "error", err)
		return done, err
	}
	r.applied.Add(1)
	r.lastFailed.Store(false)
	r.lastSuccess.Store(time.Now().UnixMilli())
	r.log.Info("the configuration was reloaded", "by", why, "changed", strings.Join(done.Changed, ","))
	return done, nil
}

func (r *reloader) reloadLocked(ctx context.Context) (done reloaded, err error) {
	if r.n.cfg.source == nil {
		return done, errors.New("this node was not started from a configuration that could be read again")
	}
	read, err := r.n.cfg.source.load()
	if err != nil {
		return done, err
	}
	next, done := r.merge(&read)
	p, err := r.prepare(ctx, next)
	if err != nil {
		return done, err
	}
	for _, name := range p.files {
		if !slices.Contains(done.Changed, name) {
			done.Changed = append(done.Changed, name)
		}
	}
	slices.Sort(done.Changed)
	p.apply()
	r.running.Store(next)
	for _, name := range done.Restart {
		r.log.Warn("a changed setting needs a restart; the old value stays until then", "setting", name)
	}
	return done, nil
}

// merge returns the running configuration with the settings of read that can change while the node runs.
func (r *reloader) merge(read *Config) (*Config, reloaded) {
	done := reloaded{Changed: []string{}, Restart: []string{}}
	now := r.running.Load()
	next := *now
	from, into := settingValues(read), settingValues(&next)
	for _, name := range settingNames() {
		switch {
		case reflect.DeepEqual(from[name].Interface(), into[name].Interface()):
		case changesLive(name, now, read):
			into[name].Set(from[name])
			done.Changed = append(done.Changed, name)
		default:
			done.Restart = append(done.Restart, name)
		}
	}
	return &next, done
}

// prepared is all that a reload replaces, read and checked.
type prepared struct {
	files []string // settings whose files have changed
	steps []func() // none of them can fail
}

func (p *prepared) apply() {
	for _, step := range p.steps {
		step()
	}
}

func (p *prepared) then(step func()) { p.steps = append(p.steps, step) }

// prepare reads what the settings name, and changes nothing.
func (r *reloader) prepare(ctx context.Context, next *Config) (*prepared, error) {
	p := &prepared{}
	var errs []error
	for _, part := range []func(context.Context, *Config, *prepared) error{
		r.prepareCertificates, r.prepareAccess, r.prepareIssuers, r.prepareLimits, r.prepareGossip, r.preparePartitions,
	} {
		if err := part(ctx, next, p); err != nil {
			errs = append(errs, err)
		}
	}
	return p, errors.Join(errs...)
}

// prepareCertificates refuses a new certificate that clients or other nodes would refuse. The one in use is kept, whatever
// its age: the rest of the configuration must not wait for it.
func (r *reloader) prepareCertificates(_ context.Context, next *Config, p *prepared) error {
	fresh, err := readCertificates(next)
	if err != nil {
		return err
	}
	old := r.n.certificates.Load()
	if next.TLSCert == "" {
		fresh.shown = old.shown // a node for development made it
	}
	sameShown, sameAuthority := fresh.same(old)
	if sameShown && sameAuthority {
		return nil
	}
	if next.TLSCA != "" {
		if err := fresh.forNode(next, fsm.NodeID(r.n.id)); err != nil {
			return err
		}
	}
	if _, fault := fresh.faults(next, time.Now()); fault != nil {
		return fault
	}
	if !sameShown {
		p.files = append(p.files, "tls-cert")
	}
	if !sameAuthority {
		p.files = append(p.files, "tls-ca")
	}
	p.then(func() {
		r.n.certificates.Store(fresh)
		tellFaults(r.log, fresh, next, time.Now())
	})
	return nil
}
