package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cluster/callnet"
	"github.com/busbar-mq/busbar/cluster/simnet"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

const (
	policyName, policyKey = "RootManageSharedAccessKey", "c2VjcmV0IGtleSBmb3IgdGVzdHM="
	clientPort            = ":5672"
	// catalogVoters is how many nodes vote in the catalog at most, as in command busbar.
	catalogVoters = 5
)

// node is one life of a broker process.
type node struct {
	*machine
	w    *world
	log  hclog.Logger
	fs   *faultfs.FS
	disk *disk
	port *callnet.Port
	runs program

	greeter *greeter
	clock   *clock
	ended   chan struct{}

	dir       *storage.Dir
	view      *cluster.View
	gossips   sync.WaitGroup
	host      *partition.Host
	directory *partition.Directory
	router    *partition.Router
	sup       *control.Supervisor
	front     *transport.Server
	served    chan error
	ctx       context.Context
	cancel    context.CancelFunc
	closing   sync.Once
	bodies    sync.Map // fsm.PartitionID to *storage.Bodies
}

// start boots a node on the machine.
func (w *world) start(m *machine) error {
	m.life++
	n := &node{machine: m, w: w, clock: newClock(), fs: m.fs, disk: m.disk, port: w.net.Port(m.id),
		ended: make(chan struct{}), served: make(chan error, 1),
		log: w.log.Named(fmt.Sprintf("%s.%d", m.id, m.life))}
	n.runs = program{m.knows, m.knows}
	if w.cfg.Liars {
		n.runs.says = fsm.NewestVersion
	}
	m.running.Store(uint32(n.runs.Version))
	m.says.Store(uint32(n.runs.says))
	n.greeter = &greeter{Port: n.port, n: n}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.open(); err != nil {
		return fmt.Errorf("start %s: %w", m.id, err)
	}
	m.node = n
	m.stopped.Store(false)
	n.gossips.Go(n.gossip)
	w.c.add("starts", 1)
	return nil
}

func (n *node) open() error {
	cfg := storage.Defaults()
	cfg.Dir, cfg.FS, cfg.Log = n.machine.dir, n.fs, storage.LogBolt
	cfg.FirstVersion = int(fsm.OldestVersion)
	cfg.AdmitVersion = func(told int) error {
		return fsm.Version(told).Open(fsm.OldestVersion, n.runs.says, programName)
	}
	cfg.BodySegmentBytes, cfg.BodyCacheBytes = n.w.cfg.BodySegmentBytes, 64<<10
	var err error
	if n.dir, err = storage.Open(cfg, n.log.Named("storage")); err != nil {
		return err
	}
	incarnation := fsm.Incarnation(n.w.rng().Uint64() | 1)
	pc := n.w.cfg.partition
	pc.Node, pc.Name, pc.Incarnation, pc.Clock = n.id, n.name, incarnation, n.clock.now
	pc.Knows = n.runs.says
	pc.OnHold = func(time.Duration) { n.w.c.add("sends held", 1) }
	n.view = cluster.NewView()
	n.host, err = partition.NewHost(pc, partition.Deps{
		Caller: n.greeter, Locator: n.view, Open: n.stores, Machine: n.machineOf, OnFatal: n.fatal, Log: n.log,
		Held:        n.held,
		KeepVersion: func(v fsm.Version) error { return n.dir.KeepVersion(int(v)) },
		Rebuild:     n.rebuild, Lives: lives{n.dir},
		Quarantine: func(p fsm.PartitionID, reason string) error { return n.dir.Quarantine(uint16(p), reason) },
	})
	if err != nil {
		return err
	}
	n.greeter.host.Store(n.host)
	n.port.OnLost(func(peer fsm.NodeID) {
		n.w.c.add("peers given up", 1)
		n.host.PeerLost(n.ctx, peer)
	})
	n.directory = partition.NewDirectory(n.host)
	n.router = partition.NewRouter(n.host, n.directory)
	n.w.net.Attach(n.port)
	if err := n.openFront(incarnation); err != nil {
		return err
	}
	sc := control.Defaults()
	sc.Name, sc.Zone, sc.Peers, sc.Left, sc.Place = n.name, n.zone, n.w.alive, n.w.left, cluster.Place
	sc.Partitions, sc.Replicas, sc.CatalogVoters = n.w.cfg.Partitions, n.w.cfg.Replicas, catalogVoters
	sc.FollowFrom = 3 // clients of the simulation send little
	if n.founder {
		sc.Bootstrap = n.w.founders
	}
	n.sup, err = partition.Supervise(n.host, n.directory, sc)
	return err
}

func (n *node) openFront(incarnation fsm.Incarnation) error {
	policies, err := auth.New(0)
	if err != nil {
		return err
	}
	err = policies.Replace("", auth.Policy{Name: policyName, Primary: policyKey, Rights: auth.All})
	if err != nil {
		return err
	}
	tc := transport.Defaults()
	tc.Incarnation = incarnation
	tc.ProposeTimeout = n.w.cfg.ProposeTimeout
	if most := n.w.cfg.transactionMessages; most > 0 {
		tc.MaxTransactionMessages = most
	}
	broker := transport.Broker(n.router)
	if n.w.cfg.Sin != nil {
		broker = n.w.cfg.Sin.Wrap(broker)
	}
	if n.front, err = transport.New(tc, transport.Deps{Broker: broker, Catalog: n.directory, Policies: policies,
		Refusals: refusal.New(uint64(incarnation), n.log, time.Now)}, n.log); err != nil {
		return err
	}
	n.router.OnReleased(n.front.SessionReleased)
	n.host.ServeClients(n.front)
	l, err := n.w.clients.Host(n.ip).Listen(n.ctx, clientPort)
	if err != nil {
		return err
	}
	go func() { n.served <- n.front.Serve(l, nil) }()
	return nil
}

func (n *node) held() (all []fsm.PartitionID, _ error) {
	ids, err := n.dir.Groups()
	for _, id := range ids {
		all = append(all, fsm.PartitionID(id))
	}
	return all, err
}

func (n *node) machineOf(p fsm.PartitionID) replica.Machine {
	who := fmt.Sprintf("%s.%d", n.id, n.life)
	if p == fsm.CatalogPartition {
		return &watchedCatalog{State: catalog.New(), who: who, witness: n.w.witness, node: n}
	}
	return &watched{State: fsm.New(p), who: who, p: p, witness: n.w.witness, c: n.w.c, node: n}
}

func (n *node) stores(p fsm.PartitionID) (replica.Stores, error) {
	g, err := n.dir.Group(uint16(p))
	if err != nil {
		return replica.Stores{}, err
	}
	removed, err := n.rebuilt(p)
	if err != nil {
		return replica.Stores{}, errors.Join(err, g.Close())
	}
	n.disk.renew(p, removed)
	list, err := g.Snapshots().List()
	if err != nil {
		return replica.Stores{}, errors.Join(err, g.Close())
	}
	if len(list) > 0 {
		n.disk.reconcile(p, list[0].Index, list[0].Term)
	}
	n.bodies.Store(p, g.Bodies())
	return replica.Stores{
		Log: &logStore{n.disk, p, n.w.c, n}, Stable: &stableStore{d: n.disk, p: p}, Snapshots: g.Snapshots(),
		Bodies: g.Bodies(), Close: g.Close, Rejoins: g.Rejoins(),
	}, nil
}

// rebuild deletes the replica of a partition. Its log and votes go when the partition is opened again.
func (n *node) rebuild(p fsm.PartitionID, removed uint64) error {
	n.w.c.add(replicasDeleted, 1)
	return n.dir.Rebuild(uint16(p), removed)
}

// fatal is what the process says when it must end; the world restarts it, as an orchestrator does.
func (n *node) fatal(err error) {
	n.w.c.add("processes ended by themselves", 1)
	n.w.event("%s must end: %v", n.id, err)
	n.w.sicken(n)
}

// crash ends the process without a word. With power loss what was not synced is gone too. It returns
// when nothing of the process runs any more.
func (n *node) crash(powerLoss bool, rng *rand.Rand) {
	n.port.Kill()
	n.w.clients.Host(n.ip).Kill()
	m := n.machine
	m.disk = n.disk.powerOff()
	if powerLoss {
		m.fs = n.fs.Crash(rng)
	} else {
		m.fs = n.fs.Kill()
	}
	m.node = nil
	n.stop(false)
}

// stop closes the rooms in reverse; in good order it hands leaderships over first.
func (n *node) stop(orderly bool) {
	n.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if !orderly {
			cancel()
		}
		n.cancel()
		n.gossips.Wait()
		err := errors.Join(n.front.Close(ctx), <-n.served)
		n.sup.Close()
		err = errors.Join(err, n.host.Close(ctx))
		n.port.Kill()
		n.w.clients.Host(n.ip).Kill()
		err = errors.Join(err, n.dir.Close())
		if err != nil {
			n.log.Debug("stopped", "orderly", orderly, "error", err)
		}
		n.machine.node = nil
		n.stopped.Store(orderly)
		close(n.ended)
	})
	<-n.ended
}

// clientHost is where a client lives.
func (w *world) clientHost(i int) *simnet.Host { return w.clients.Host(fmt.Sprintf("10.1.0.%d", i+1)) }
