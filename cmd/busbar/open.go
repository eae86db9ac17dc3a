package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/process"
	"github.com/busbar-mq/busbar/cmd/busbar/sink"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/rest"
)

// The types that implement interfaces of other packages.
var (
	_ transport.Broker  = (*partition.Router)(nil)
	_ transport.Catalog = (*partition.Directory)(nil)
	_ transport.Changes = (*partition.Directory)(nil)
	_ transport.Rules   = (*partition.Directory)(nil)
	_ rest.Entities     = keyedEntities{}
	_ rest.Topics       = (*partition.Directory)(nil)
	_ partition.Caller  = (*cluster.Mesh)(nil)
	_ partition.Locator = (*cluster.View)(nil)
	_ replica.Bodies    = (*storage.Bodies)(nil)
	_ replica.Machine   = (*fsm.State)(nil)
	_ replica.Machine   = (*catalog.State)(nil)
	_ rest.Cluster      = (*status)(nil)
	_ audit.Sink        = sink.Sink(nil)
)

// clusterName is in every hello and gossip packet; two clusters that must not meet have different
// networks or gossip keys.
const clusterName = "busbar"

// ballastBytes is room for a handful of groups to elect, to take a snapshot and to cut their logs on a
// disk that is full.
const ballastBytes = 64 << 20

// openNode opens every room and returns when the node serves, or ctx ends. The operations port
// answers from early on, so that an orchestrator sees a node that waits for its peers alive.
func openNode(ctx context.Context, cfg Config, log hclog.Logger) (_ *node, err error) {
	n := &node{cfg: cfg, log: log, failed: make(chan error, 1), started: time.Now(), health: newHealthView(), timings: newTimings()}
	n.background, n.cancel = context.WithCancel(context.Background())
	if cfg.Entities != "" {
		n.entitiesMade = make(chan struct{})
	}
	n.reloader = newReloader(n)
	defer func() {
		if err != nil {
			stopping, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			err = errors.Join(err, n.close(stopping))
		}
	}()
	for _, open := range []func(context.Context) error{
		n.openStorage, n.openAudit, n.openCertificates, n.openDoors, n.openMesh, n.openPartitions, n.watchAlarms, n.openFront,
		n.openIssuers, n.openOps,
		n.found, n.openPolicies, n.serve, n.startEntities,
	} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *node) openStorage(context.Context) error {
	cfg := storageConfig(n.cfg.DataDir, n.cfg.LogStore)
	cfg.BallastBytes = ballastBytes
	if n.cfg.Ephemeral {
		if err := n.openEphemeral(&cfg); err != nil {
			return err
		}
	}
	dir, err := storage.Open(cfg, n.log.Named("storage"))
	if err != nil {
		return mendable(fmt.Errorf("data directory: %w", err), cfg.Dir)
	}
	n.dir = dir
	n.onClose(func(context.Context) error { return dir.Close() })
	n.id = fsm.NodeID(dir.NodeID())
	var chance [8]byte
	if _, err := rand.Read(chance[:]); err != nil {
		return err
	}
	n.incarnation = fsm.Incarnation(binary.LittleEndian.Uint64(chance[:]) | 1) // never 0
	n.log.Info("starting", "version", programVersion(), "knows", fsm.NewestVersion.String(), "data", fsm.Version(dir.Version()).String(), "id", n.id, "name", n.cfg.NodeName)
	if descriptors, known := process.MaxDescriptors(); known {
		_, reserve := room(descriptors, n.cfg.Partitions)
		n.log.Info("open files", "limit", descriptors, "reserved", reserve, "connections", n.cfg.Limits.Connections,
			"operations", n.cfg.Limits.Operations)
	}
	return nil
}

func (n *node) openMesh(context.Context) error {
	cfg, err := n.clusterConfig()
	if err != nil {
		return err
	}
	n.reloader.gossip = cfg.GossipKeys
	n.view = cluster.NewView()
	if n.gossip, err = cluster.NewGossip(cfg, n.view, n.log); err != nil {
		return err
	}
	if n.mesh, err = cluster.NewMesh(cfg, n.gossip.Resolve, n.log); err != nil {
		return err
	}
	n.bootstrap = cluster.NewBootstrap(cfg, n.mesh, n.gossip, n.dir, n.log)
	return nil
}

func (n *node) clusterConfig() (cluster.Config, error) {
	cfg := cluster.Defaults()
	cfg.ClusterName, cfg.Node, cfg.Incarnation = clusterName, n.id, n.incarnation
	cfg.PeerListen, cfg.GossipListen = n.cfg.PeerListen, n.cfg.GossipListen
	cfg.AllowPlaintext = n.cfg.AllowPlaintextPeer
	cfg.Join, cfg.BootstrapExpect = n.cfg.Join, n.cfg.BootstrapExpect
	cfg.RootKey = func() cluster.Digest { return keyDigest(n.reloader.running.Load().Policies) }
	cfg.Versions = func() cluster.Versions {
		v := cluster.Versions{Newest: fsm.NewestVersion, Oldest: fsm.OldestVersion}
		if n.host != nil { // before the mesh speaks
			v.Has = n.host.ClusterVersion()
		}
		return v
	}
	cfg.Known = func(id fsm.NodeID) bool {
		if n.directory == nil || n.directory.View() == nil { // before the mesh speaks, or the catalog is there
			return false
		}
		_, known := n.directory.View().Node(id)
		return known
	}
	var founders atomic.Pointer[cluster.Digest] // the file is written once, and read at hellos until then
	cfg.Founded = func() cluster.Digest {
		if d := founders.Load(); d != nil {
			return *d
		}
		d := cluster.Founded(n.dir)
		if d != (cluster.Digest{}) {
			founders.Store(&d)
		}
		return d
	}
	keys, err := n.cfg.gossipRing()
	if err != nil {
		return cfg, err
	}
	cfg.GossipKeys = keys
	if n.cfg.Advertise != "" {
		if p := portOf(n.cfg.PeerListen); p != "0" {
			cfg.PeerAdvertise = net.JoinHostPort(n.cfg.Advertise, p)
		}
		if p := portOf(n.cfg.GossipListen); p != "0" {
			cfg.GossipAdvertise = net.JoinHostPort(n.cfg.Advertise, p)
		}
	}
	if n.cfg.TLSCA != "" {
		identity, err := n.peerTLS(n.id)
		if err != nil {
			return cfg, err
		}
		cfg.TLS = identity
	}
	return cfg, nil
}

// keyDigest tells two root keys apart without giving either away; zero without a key.
func keyDigest(policies []policy) (d cluster.Digest) {
	for _, p := range policies {
		if p.Name == devKeyName && p.Primary != "" {
			mac := hmac.New(sha256.New, []byte(p.Primary))
			mac.Write([]byte("busbar: nodes of one cluster have one root key"))
			copy(d[:], mac.Sum(nil))
		}
	}
	return d
}

func portOf(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "0"
	}
	return port
}

// openPartitions registers the calls of the partitions, then lets the mesh and gossip speak.
func (n *node) openPartitions(context.Context) error {
	cfg := partition.Defaults()
	cfg.Node, cfg.Incarnation, cfg.Program = n.id, n.incarnation, programVersion()
	if !n.cfg.unnamed {
		cfg.Name = n.cfg.NodeName
	}
	cfg.Partitions = n.cfg.wantedPartitions()
	cfg.MoveBytesPerSecond = int64(n.cfg.MoveRate)
	cfg.OnCommit, cfg.OnSync, cfg.OnApply = n.timings.commit.observe, n.timings.sync.observe, n.timings.apply.observe
	cfg.OnHold = n.timings.held.observe
	cfg.Limits, cfg.MaxReceives = n.cfg.Limits.namespace(), n.cfg.Limits.ConcurrentReceives
	host, err := partition.NewHost(cfg, partition.Deps{
		Caller: n.mesh, Locator: n.view, Open: n.stores, Machine: newMachine, OnFatal: n.fail,
		Held:        n.held,
		Rebuild:     func(p fsm.PartitionID, removed uint64) error { return n.dir.Rebuild(uint16(p), removed) },
		Quarantine:  func(p fsm.PartitionID, reason string) error { return n.dir.Quarantine(uint16(p), reason) },
		KeepVersion: func(v fsm.Version) error { return n.dir.KeepVersion(int(v)) },
		About:       n.about, Lives: lives{n.dir}, Disk: n.dir, Log: n.log.Named("partition"),
	})
	if err != nil {
		return err
	}
	n.host = host
	n.directory = partition.NewDirectory(host)
	n.router = partition.NewRouter(host, n.directory)
	n.mesh.Handle(kindConnections, n.desk.serve)
	if err := n.mesh.Start(); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	n.onClose(func(context.Context) error { return n.mesh.Close() })
	if err := n.gossip.Start(n.mesh.Addr()); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	n.onClose(func(context.Context) error { return errors.Join(n.gossip.Leave(), n.gossip.Close()) })
	n.onClose(host.Close)
	stop := n.mesh.Watch(func(peer fsm.NodeID, up bool) {
		if !up {
			go host.PeerLost(n.background, peer) // it asks the other nodes: not on the mesh's goroutine
		}
	})
	n.onClose(func(context.Context) error { stop(); return nil })
	return n.gossip.SetAddrs(n.doors.ops.Addr().String(), n.doors.clientAddrs())
}

// watchAlarms starts to look until the node closes.
func (n *node) watchAlarms(context.Context) error {
	n.alarms = &alarms{look: n.alarmChecks, log: n.log.Named("alarms"), failing: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(func() { n.alarms.run(n.background) })
	n.onClose(func(context.Context) error { n.cancel(); wg.Wait(); return nil })
	return nil
}

func (n *node) openFront(ctx context.Context) error {
	keys, err := newPolicyKeeper(n.cfg, n.log.Named("policies"))
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	n.keys, n.policies = keys, keys.policies
	st := &status{n}
	n.refusals = refusal.New(uint64(n.incarnation), n.log.Named("refusals"), time.Now)
	n.onClose(func(context.Context) error { n.refusals.Close(); return nil }) // the last one, after the front end
	n.metricEntities = &entityChoice{most: func() int { return n.reloader.running.Load().Limits.MetricEntities }, now: time.Now}
	metrics := newMetrics(n)
	n.api, err = rest.New(n.cfg.restConfig(), rest.Deps{
		Entities: keyedEntities{n.directory, keys}, Topics: n.directory, Cluster: st, Policies: n.policies,
		Metrics: metrics, Refusals: n.refusals, Now: time.Now, Accepted: transport.Known}, n.log.Named("http"))
	if err != nil {
		return err
	}
	front := n.cfg.frontConfig(n.incarnation)
	thrift := process.NewThrift(func() int {
		held, _ := n.front.Held()
		return held
	})
	front.OnLarge = thrift.Large
	front.LeaveOver = n.leaveOver
	front.OnConfirmed, front.OnDelivered, front.OnSettled = n.timings.confirm.observe, n.timings.deliver.observe, n.timings.settle.observe
	n.router.OnLarge(thrift.Large)
	if err := n.openTraces(ctx, &front); err != nil {
		return exit.With(exit.Usage, err)
	}
	n.onClose(func(context.Context) error { thrift.Close(); return nil })
	if n.cfg.Dev { // whose key every page knows
		front.Guard = newHostGuard(n.cfg).handler
	}
	n.front, err = transport.New(front, transport.Deps{Broker: n.router, Catalog: n.directory, Policies: n.policies,
		Refusals: n.refusals, Audit: n.audit,
		Handler: n.audit.Requests(audit.ViaManagement, n.timings.timed("client", n.api.Management()))}, n.log.Named("amqp"))
	if err != nil {
		return err
	}
	n.desk.front.Store(n.front)
	n.router.OnReleased(n.front.SessionReleased)
	n.host.ServeClients(n.front)
	n.onClose(n.front.Close)
	return nil
}

func (n *node) openOps(context.Context) error {
	handler, err := n.withOperator(n.withMessages(n.withReload(n.withConnections(n.withEvents(n.withHealth(n.withEntityMetrics(n.withBackups(withAudit(n.api.Operations(), n.directory)))))))))
	if err != nil {
		return err
	}
	if n.cfg.Pprof {
		handler = withProfiles(handler)
	}
	guard, hosts := &opsGuard{policies: n.policies, now: time.Now, dev: n.cfg.Dev}, newHostGuard(n.cfg)
	port := n.audit.Requests(audit.ViaOperations, guard.handler(n.timings.timed("operations", handler)))
	if handler, err = n.withConsole(port, hosts); err != nil {
		return err
	}
	n.ops = rest.NewServer(hosts.handler(handler), n.log.Named("http"))
	seatRequests(n.ops)
	var listener net.Listener = &opsListener{n.doors.ops, n.front.Sockets()}
	if n.doors.opsTLS != nil {
		listener = tls.NewListener(listener, n.doors.opsTLS)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.ops.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("operations port: %w", err))
		}
	}()
	n.onClose(func(ctx context.Context) error {
		n.closeOps(ctx)
		<-done
		return nil
	})
	return nil
}

// opsStop is how long a stop waits for the requests at the operations port. Clients and leaderships need the rest of its time.
const opsStop = 2 * time.Second

// closeOps lets the requests of operators end, and cuts off those that take too long.
func (n *node) closeOps(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, opsStop)
	defer cancel()
	if err := n.ops.Shutdown(ctx); err != nil {
		n.log.Info("requests at the operations port are cut off", "reason", err)
		_ = n.ops.Close() // the listener is closed already
	}
}

// found waits for the list of founding nodes (A20), and for this node's share of the cluster to
// open.
func (n *node) found(ctx context.Context) error {
	members, member, err := n.bootstrap.Run(ctx)
	if err != nil {
		return mendable(err, n.cfg.DataDir)
	}
	if !member {
		n.log.Info("joining a cluster that others founded", "founders", len(members))
		members = nil
	}
	cfg := control.Defaults()
	cfg.Name, cfg.Zone, cfg.Bootstrap = n.cfg.NodeName, n.cfg.Zone, members
	if !n.cfg.unnamed {
		cfg.Peers, cfg.NameTaken = n.gossip.Alive, func(owner fsm.NodeID) { n.nameOwner.Store(&owner) }
	}
	cfg.Partitions, cfg.Replicas, cfg.Finalize = n.cfg.Partitions, n.cfg.ReplicationFactor, n.cfg.FinalizeUpgrades
	cfg.CatalogVoters, cfg.Place, cfg.Left = catalogVoters, cluster.Place, n.gossip.Left
	n.supervisor, err = partition.Supervise(n.host, n.directory, cfg)
	if err != nil {
		return err
	}
	n.onClose(func(context.Context) error { n.supervisor.Close(); return nil })
	return nil
}

// serve lets the clients in.
func (n *node) serve(context.Context) error {
	for _, door := range n.doors.clients {
		go func() {
			if err := n.front.Serve(door.listener, door.tls); err != nil {
				n.fail(fmt.Errorf("listener %s: %w", door.listener.Addr(), err))
			}
		}()
	}
	return n.doors.writePorts(n.cfg.PortsFile)
}
