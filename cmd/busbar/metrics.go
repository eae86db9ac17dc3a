package main

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// newMetrics returns the registry of a node: the Go runtime, the process, and what the rooms count.
// Packages keep plain counters, and this file makes metrics of them. Package rest serves the registry.
func newMetrics(n *node) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newNodeCollector(n),
		newReloadCollector(n),
		newAuditCollector(n),
		newEntityCollector(n, n.metricEntities.choose),
	)
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "busbar_build_info", Help: "Always 1; the label is the version.",
		ConstLabels: prometheus.Labels{"version": programVersion()},
	}, func() float64 { return 1 }))
	r.MustRegister(versionMetrics(n)...)
	r.MustRegister(n.timings.all()...)
	return r
}

// nodeCollector reads the rooms' counters when it is asked.
type nodeCollector struct {
	n       *node
	front   []frontMetric
	reject  *prometheus.Desc
	used    *prometheus.Desc
	limit   *prometheus.Desc
	refused *prometheus.Desc
	leads   *prometheus.Desc
	terms   *prometheus.Desc
	apply   *prometheus.Desc
	peers   *prometheus.Desc
	free    *prometheus.Desc
	clock   *prometheus.Desc
	broken  *prometheus.Desc
	longest *prometheus.Desc
	paused  *prometheus.Desc
	stuck   *prometheus.Desc
	dropped *prometheus.Desc
	alarm   *prometheus.Desc
	clients *prometheus.Desc
}

type frontMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*transport.Stats) float64
}

func newNodeCollector(n *node) *nodeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("busbar_"+name, help, labels, nil)
	}
	counter := func(name, help string, at func(*transport.Stats) *atomic.Uint64) frontMetric {
		return frontMetric{desc(name, help), prometheus.CounterValue,
			func(s *transport.Stats) float64 { return float64(at(s).Load()) }}
	}
	gauge := func(name, help string, at func(*transport.Stats) *atomic.Int64) frontMetric {
		return frontMetric{desc(name, help), prometheus.GaugeValue,
			func(s *transport.Stats) float64 { return float64(at(s).Load()) }}
	}
	type st = transport.Stats
	return &nodeCollector{n: n,
		front: []frontMetric{
			counter("sockets_accepted_total", "Sockets accepted from clients.", func(s *st) *atomic.Uint64 { return &s.Accepted }),
			gauge("connections", "AMQP connections open.", func(s *st) *atomic.Int64 { return &s.Connections }),
			gauge("links", "AMQP links open.", func(s *st) *atomic.Int64 { return &s.Links }),
			counter("messages_in_total", "Messages stored for clients.", func(s *st) *atomic.Uint64 { return &s.MessagesIn }),
			counter("messages_out_total", "Messages written to clients.", func(s *st) *atomic.Uint64 { return &s.MessagesOut }),
			counter("bytes_in_total", "Bytes of frames read from clients.", func(s *st) *atomic.Uint64 { return &s.BytesIn }),
			counter("bytes_out_total", "Bytes written to clients.", func(s *st) *atomic.Uint64 { return &s.BytesOut }),
			counter("settlements_total", "Settlements applied.", func(s *st) *atomic.Uint64 { return &s.Settled }),
			counter("settlements_refused_total", "Settlements refused, as by a lost lock.", func(s *st) *atomic.Uint64 { return &s.SettleRefused }),
			counter("requests_total", "Requests to $cbs and $management.", func(s *st) *atomic.Uint64 { return &s.Requests }),
			counter("websockets_total", "Connections that came as WebSocket.", func(s *st) *atomic.Uint64 { return &s.WebSockets }),
			counter("connections_lost_total", "Connections that ended without a close.", func(s *st) *atomic.Uint64 { return &s.Lost }),
		},
		reject:  desc("rejections_total", "What the front end turned away, by place.", "site"),
		used:    desc("limit_used", "How much of a limit of this node is in use.", "limit"),
		limit:   desc("limit_max", "The limit, as set or as the process may have it.", "limit"),
		refused: desc("refusals_total", "What clients were refused, by the code that they were told.", "code"),
		leads:   desc("partition_leading", "1 if this node leads the partition.", "partition"),
		terms:   desc("partition_term", "Raft term of the replica here.", "partition"),
		apply:   desc("partition_applied_index", "Last log index applied here.", "partition"),
		free:    desc("disk_free_bytes", "Bytes that may still be written to the disk of the data directory."),
		clock:   desc("clock_ahead_seconds", "By how much the date of this node is ahead of the median of all nodes."),
		broken:  desc("partition_failed", "1 if the replica here has failed and must be rebuilt.", "partition"),
		stuck:   desc("partition_wedges_total", "How often the replica here was found standing still and opened anew or given up.", "partition"),
		longest: desc("partition_apply_peak_seconds", "Longest time the replica took to apply a batch of entries since it was opened.", "partition"),
		paused:  desc("partition_snapshot_pause_seconds", "Longest time a snapshot kept the replica from applying since it was opened.", "partition"),
		dropped: desc("messages_dropped_total", "Messages that ended without being completed, by reason; of the partitions that this node leads. "+
			"Without entity: messages of deleted entities, and of entities beyond the first "+strconv.Itoa(maxDropEntities)+".",
			"partition", "entity", "reason"),
		clients: desc("client_connections", "AMQP connections open, by protocol and by the library that the client introduced itself with.",
			"protocol", "sdk"),
		alarm: desc("alarm", "1 while an alarm of this node is raised.", "alarm"),
		peers: desc("nodes", "Nodes known to gossip, by state.", "state"),
	}
}

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.front {
		ch <- m.desc
	}
	for _, d := range []*prometheus.Desc{c.reject, c.used, c.limit, c.refused, c.leads, c.terms, c.apply, c.peers, c.free, c.broken, c.stuck,
		c.longest, c.paused, c.clock, c.dropped, c.alarm, c.clients} {
		ch <- d
	}
}

// collectLimits reports what is used of the limits of the node.
func (c *nodeCollector) collectLimits(ch chan<- prometheus.Metric) {
	sockets := c.n.front.Sockets()
	total, strangers := sockets.Used()
	limits := sockets.Limits()
	held, inTransactions := c.n.front.Held()
	messages, bytes := c.n.front.KeyUse()
	set := c.n.reloader.running.Load().Limits
	rate := set.keyRate()
	for _, l := range []struct {
		name      string
		used, max int
	}{
		{"key-messages", messages, rate.MessageBurst}, {"key-bytes", bytes, rate.ByteBurst},
		{"connections", total, limits.Total}, {"unauthenticated", strangers, limits.Strangers},
		{"operations", sockets.UsedOperations(), limits.Operations},
		{"client-bytes", held, set.ClientBytes},
		{"transaction-bytes", inTransactions, set.TransactionBytes},
	} {
		if l.max == 0 { // no such limit
			continue
		}
		ch <- prometheus.MustNewConstMetric(c.used, prometheus.GaugeValue, float64(l.used), l.name)
		ch <- prometheus.MustNewConstMetric(c.limit, prometheus.GaugeValue, float64(l.max), l.name)
	}
}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	stats := c.n.front.Stats()
	for _, m := range c.front {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.read(stats))
	}
	stats.Rejections(func(name string, count uint64) {
		ch <- prometheus.MustNewConstMetric(c.reject, prometheus.CounterValue, float64(count), name)
	})
	ch <- prometheus.MustNewConstMetric(c.reject, prometheus.CounterValue, float64(c.n.front.Sockets().TurnedAwayOperations()),
		"operations")
	stats.Clients(func(protocol, sdk string, open int64) {
		ch <- prometheus.MustNewConstMetric(c.clients, prometheus.GaugeValue, float64(open), protocol, sdk)
	})
	c.collectLimits(ch)
	c.n.refusals.Counts(func(code refusal.Code, count uint64) {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(count), code.String())
	})
	for _, s := range c.n.host.Status() {
		p := strconv.Itoa(int(s.Partition))
		leading := 0.0
		if s.Leading {
			leading = 1
		}
		broken := 0.0
		if s.Broken {
			broken = 1
		}
		ch <- prometheus.MustNewConstMetric(c.longest, prometheus.GaugeValue, s.ApplyPeak.Seconds(), p)
		ch <- prometheus.MustNewConstMetric(c.paused, prometheus.GaugeValue, s.SnapshotPause.Seconds(), p)
		ch <- prometheus.MustNewConstMetric(c.broken, prometheus.GaugeValue, broken, p)
		ch <- prometheus.MustNewConstMetric(c.stuck, prometheus.CounterValue, float64(s.Stuck), p)
		ch <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, leading, p)
		ch <- prometheus.MustNewConstMetric(c.terms, prometheus.GaugeValue, float64(s.Term), p)
		ch <- prometheus.MustNewConstMetric(c.apply, prometheus.GaugeValue, float64(s.Applied), p)
	}
	c.collectDrops(ch)
	c.collectAlarms(ch)
	if free, _, err := c.n.dir.Space(); err == nil {
		ch <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, float64(free))
	}
	if clock := c.n.host.Clock(); clock.Judged {
		ch <- prometheus.MustNewConstMetric(c.clock, prometheus.GaugeValue, clock.Ahead.Seconds())
	}
	states := map[string]int{}
	for _, m := range c.n.gossip.Members() {
		states[m.State.String()]++
	}
	for state, count := range states {
		ch <- prometheus.MustNewConstMetric(c.peers, prometheus.GaugeValue, float64(count), state)
	}
}

// collectAlarms gives each alarm a series, so that an alert sees the end of one.
func (c *nodeCollector) collectAlarms(ch chan<- prometheus.Metric) {
	raised := map[string]float64{}
	for _, a := range c.n.alarms.list() {
		raised[a.Name] = 1
	}
	for _, check := range c.n.alarmChecks() {
		ch <- prometheus.MustNewConstMetric(c.alarm, prometheus.GaugeValue, raised[check.Name], check.Name)
	}
}

// maxDropEntities bounds the entities of a node that have series of their own. So a namespace with very many does not
// make its metrics unreadable.
const maxDropEntities = 1000

// collectDrops tells what ended without being completed (S-169). The counters are part of the replicated
// state: a series goes on where it was when another node leads.
func (c *nodeCollector) collectDrops(ch chan<- prometheus.Metric) {
	for _, p := range c.n.host.Dropped(maxDropEntities) {
		partition := strconv.Itoa(int(p.Partition))
		tell := func(entity string, d *fsm.Drops) {
			for why, n := range d {
				if n > 0 {
					ch <- prometheus.MustNewConstMetric(c.dropped, prometheus.CounterValue, float64(n),
						partition, entity, fsm.DropReason(why).String())
				}
			}
		}
		for i := range p.Entities {
			tell(p.Entities[i].Name, &p.Entities[i].Drops)
		}
		tell("", &p.Others)
	}
}
