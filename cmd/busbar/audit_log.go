package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/sink"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/rest"
)

// auditClose is how long a node that stops waits for the audit log to be written.
const auditClose = 2 * time.Second

// openAudit opens the audit log, if the configuration wants one. A node that cannot write it does not start; one whose disk
// fills up later goes on.
func (n *node) openAudit(context.Context) error {
	if n.cfg.AuditLog == "" {
		return nil
	}
	host, _ := os.Hostname() // without one a line of syslog says that it is not known
	to, err := sink.Open(n.cfg.AuditLog, host)
	if err != nil {
		return exit.With(exit.Usage, fmt.Errorf("audit-log %s: %w", n.cfg.AuditLog, err))
	}
	n.audit = audit.New(audit.Config{Node: n.cfg.NodeName, Life: uint64(n.incarnation), Now: time.Now}, to, n.log.Named("audit"))
	n.audit.Record(audit.Event{Action: "node.start", Who: audit.TheNode(), Via: audit.ViaNode,
		After: map[string]any{"version": programVersion(), "nodeId": string(n.id)}})
	n.onClose(func(ctx context.Context) error {
		n.audit.Record(audit.Event{Action: "node.stop", Who: audit.TheNode(), Via: audit.ViaNode})
		ctx, cancel := context.WithTimeout(ctx, auditClose)
		defer cancel()
		return n.audit.Close(ctx)
	})
	return nil
}

// auditCheck is the alarm of the audit log, none if there is no log.
func (n *node) auditCheck() []partition.Check {
	if n.audit == nil {
		return nil
	}
	return []partition.Check{{Name: "audit-log", Err: n.audit.Check()}}
}

// nameCommand gives a request that opsGuard guards its name in the audit log. Those without one only look.
func nameCommand(r *http.Request) {
	entry := audit.Of(r.Context())
	if entry == nil {
		return
	}
	switch path := r.URL.Path; {
	case path == client.AuditPath:
		entry.Do("debug.audit", "")
	case path == resetPath:
		entry.Do("entities.reset", "")
	case path == reloadPath:
		entry.Do("configuration.reload", "")
	case path == client.CloseConnectionsPath:
		entry.Do("connections.close", "")
	case strings.HasPrefix(path, profilesPath):
		entry.Do("profiles.read", "")
	case isBackupPath(path):
		entry.Do(backupAction(r.Method, path), "")
	case strings.HasPrefix(path, rest.ClusterCommands) && r.Method == http.MethodPost:
		entry.Do("cluster."+strings.TrimPrefix(path, rest.ClusterCommands), r.URL.Query().Get("entity"))
	}
}

// backupAction is the name of a request about a backup or a restore.
func backupAction(method, path string) string {
	what := "backup"
	if strings.HasPrefix(path, restoresPath) {
		what = "restore"
	}
	switch {
	case method == http.MethodDelete:
		return what + ".delete"
	case strings.HasSuffix(path, "/catalog"):
		return what + ".read-catalog"
	case strings.HasSuffix(path, "/finish"):
		return what + ".finish"
	case method == http.MethodGet:
		return what + ".read-image"
	case method == http.MethodPut:
		return what + ".image"
	}
	return what + ".create"
}

// auditReload notes a reload that nobody asked for over HTTP.
func (n *node) auditReload(why string, done reloaded, err error) {
	e := audit.Event{Action: "configuration.reload", Who: audit.TheNode(), Via: audit.ViaNode, Parameters: map[string]string{"by": why},
		After: map[string]any{"changed": done.Changed, "needsRestart": done.Restart}}
	if err != nil {
		e.Outcome, e.After = "InvalidArgument", nil
	}
	n.audit.Record(e)
}

// auditCollector tells how many events the audit log has, and how many it has not.
type auditCollector struct {
	n                         *node
	events, dropped, failures *prometheus.Desc
}

func newAuditCollector(n *node) *auditCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("busbar_audit_"+name, help, labels, nil)
	}
	return &auditCollector{n: n,
		events:   desc("events_total", "Lines of the audit log that were written, by outcome.", "outcome"),
		dropped:  desc("events_dropped_total", "Events without a line: refusals beyond their bound, or events that found the queue full.", "reason"),
		failures: desc("write_failures_total", "Tries to write or to open the audit log that failed."),
	}
}

// Describe implements prometheus.Collector.
func (c *auditCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.events, c.dropped, c.failures} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A node without an audit log has no series of it.
func (c *auditCollector) Collect(ch chan<- prometheus.Metric) {
	if c.n.audit == nil {
		return
	}
	counts := c.n.audit.Counts()
	tell := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	tell(c.events, counts.OK.Load(), "ok")
	tell(c.events, counts.Refused.Load(), "refused")
	tell(c.dropped, counts.Bounded.Load(), "bound")
	tell(c.dropped, counts.Full.Load(), "queue")
	tell(c.failures, counts.WriteFailures.Load())
}
