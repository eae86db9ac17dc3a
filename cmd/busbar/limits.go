package main

import (
	"github.com/busbar-mq/busbar/cmd/busbar/process"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport"
)

// limits are what clients meet as a quota (S-229). Each is checked by the node that a request comes to, or by the
// leader of the entity. So a namespace has one set of limits only if all its nodes have the same.
type limits struct {
	Entities            int `yaml:"entities"`
	Subscriptions       int `yaml:"subscriptions"`
	SQLFilters          int `yaml:"sql-filters"`
	CorrelationFilters  int `yaml:"correlation-filters"`
	RuleText            int `yaml:"rule-text"`
	TransactionMessages int `yaml:"transaction-messages"`
	ConcurrentReceives  int `yaml:"concurrent-receives"`

	// Sockets of clients on one node, whatever they speak. Connections is lower than its default where the process
	// may open fewer files (room, below).
	Connections            int `yaml:"connections"`
	ConnectionsPerHost     int `yaml:"connections-per-host"`
	Unauthenticated        int `yaml:"unauthenticated"`
	UnauthenticatedPerHost int `yaml:"unauthenticated-per-host"`
	Links                  int `yaml:"links"`      // of one connection
	Operations             int `yaml:"operations"` // sockets of the operations port, which have places of their own

	// Bytes that a node holds in memory for its clients, and of these the bytes in their open transactions.
	ClientBytes      int `yaml:"client-bytes"`
	TransactionBytes int `yaml:"transaction-bytes"`

	// Messages and bytes that one key may send to the node, each second and at once. A rate that is not set is no
	// limit, a burst that is not set is what its rate lets through in a second.
	KeyMessages     int `yaml:"key-messages-per-second"`
	KeyMessageBurst int `yaml:"key-messages-burst"`
	KeyBytes        int `yaml:"key-bytes-per-second"`
	KeyByteBurst    int `yaml:"key-bytes-burst"`

	// MetricEntities is how many entities have series of their own on /metrics of a node.
	MetricEntities int `yaml:"metric-entities"`
}

// keyRate returns what one key may send.
func (l *limits) keyRate() transport.KeyRate {
	burst := func(set, rate int) int {
		if set == 0 {
			return rate
		}
		return set
	}
	return transport.KeyRate{Messages: l.KeyMessages, MessageBurst: burst(l.KeyMessageBurst, l.KeyMessages),
		Bytes: l.KeyBytes, ByteBurst: burst(l.KeyByteBurst, l.KeyBytes)}
}

// rate is a limit that is off until it is set.
type rate struct {
	span
	rate int
	of   string // the rate that a burst belongs to
}

func (l *limits) rates() []rate {
	return []rate{
		{span{"key-messages-per-second", l.KeyMessages, 1, maxBytes}, 1, ""},
		{span{"key-bytes-per-second", l.KeyBytes, 1, maxBytes}, 1, ""},
		{span{"key-messages-burst", l.KeyMessageBurst, 1, maxBytes}, l.KeyMessages, "key-messages-per-second"},
		{span{"key-bytes-burst", l.KeyByteBurst, 1, maxBytes}, l.KeyBytes, "key-bytes-per-second"},
	}
}

// validateRates looks at the limits that are off until they are set.
func (l *limits) validateRates(where func(name string) (string, bool), bad func(string, ...any)) {
	for _, f := range l.rates() {
		at, set := where(f.name)
		switch {
		case set && (f.is < f.least || f.is > f.most):
			bad("%slimits: %s is %d, want %d to %d; leave it out for no limit", at, f.name, f.is, f.least, f.most)
		case set && f.rate == 0:
			bad("%slimits: %s needs %s", at, f.name, f.of)
		}
	}
}

func defaultLimits() limits {
	front := transport.Defaults()
	return limits{
		Connections: front.MaxConnections, ConnectionsPerHost: front.MaxConnectionsPerHost,
		Unauthenticated: front.MaxHandshakes, UnauthenticatedPerHost: front.MaxHandshakesPerHost, Links: front.MaxLinks, Operations: front.MaxOperations,
		ClientBytes: front.MaxClientBytes, TransactionBytes: front.MaxTransactionBytes,
		Entities: catalog.MaxEntities, Subscriptions: catalog.MaxSubscriptions,
		SQLFilters: catalog.MaxSQLFilters, CorrelationFilters: catalog.MaxCorrelationFilters,
		RuleText:            rule.MaxExpressionChars,
		TransactionMessages: front.MaxTransactionMessages,
		ConcurrentReceives:  partition.Defaults().MaxReceives,
		MetricEntities:      500,
	}
}

// room is how many sockets of clients fit into the descriptors that the process may open. A part of them is for what
// the node keeps open itself: some for every replica, and one for every 16 MiB of stored bodies.
func room(descriptors, partitions int) (sockets, reserve int) {
	const own, each = 256, 24 // of the process, and of the log, bodies and snapshots of a replica
	reserve = min(max(own+each*(partitions+1), descriptors/4), descriptors/2)
	return descriptors - reserve, reserve
}

// fit lowers what was not set to what the process may open, and reports what was set and does not fit.
func (l *limits) fit(partitions int, where func(name string) (string, bool), bad func(string, ...any)) {
	descriptors, known := process.MaxDescriptors()
	if !known {
		return
	}
	sockets, reserve := room(descriptors, partitions)
	if at, set := where("operations"); !set {
		l.Operations = max(1, min(l.Operations, sockets/4))
	} else if l.Operations > sockets/2 {
		bad("%slimits: operations is %d, but of the %d files that the process may open %d are for its own, and at least half of "+
			"the others for clients: raise the limit of open files (ulimit -n) or set at most %d", at, l.Operations,
			descriptors, reserve, sockets/2)
	}
	sockets, reserve = sockets-l.Operations, reserve+l.Operations
	if at, set := where("connections"); set && l.Connections > sockets {
		bad("%slimits: connections is %d, but of the %d files that the process may open %d are for its own: "+
			"raise the limit of open files (ulimit -n) or set at most %d", at, l.Connections, descriptors, reserve, sockets)
	}
	l.Connections = max(1, min(l.Connections, sockets))
	// Of few places the sockets without a token have half, and one host a quarter, unless other numbers are set. A host
	// that floods the node keeps out neither clients nor those who are about to show their token.
	front := transport.Defaults()
	for _, f := range []struct {
		name  string
		is    *int
		usual int // the default
		part  int
	}{{"connections-per-host", &l.ConnectionsPerHost, front.MaxConnectionsPerHost, 1},
		{"unauthenticated", &l.Unauthenticated, front.MaxHandshakes, 2},
		{"unauthenticated-per-host", &l.UnauthenticatedPerHost, front.MaxHandshakesPerHost, 4}} {
		most := l.Connections
		if _, set := where(f.name); !set && *f.is == f.usual {
			most = max(1, l.Connections/f.part)
		}
		*f.is = min(*f.is, most)
	}
}

func (l *limits) validate(where func(name string) (string, bool), bad func(string, ...any)) {
	l.validateRates(where, bad)
	for _, n := range l.spans() {
		at, _ := where(n.name)
		n.validate(at+"limits: "+n.name, bad)
	}
}

// spans are the bounds of the limits that always hold.
func (l *limits) spans() []span {
	most := defaultLimits() // most may be lowered only
	return []span{
		{"entities", l.Entities, 1, catalog.MostEntities},
		{"subscriptions", l.Subscriptions, 1, most.Subscriptions},
		{"sql-filters", l.SQLFilters, 1, most.SQLFilters},
		{"correlation-filters", l.CorrelationFilters, 1, most.CorrelationFilters},
		{"rule-text", l.RuleText, 1, most.RuleText},
		{"transaction-messages", l.TransactionMessages, 1, most.TransactionMessages},
		{"concurrent-receives", l.ConcurrentReceives, 1, partition.Defaults().MaxParked},
		{"connections", l.Connections, 1, maxSockets},
		{"connections-per-host", l.ConnectionsPerHost, 1, maxSockets},
		{"unauthenticated", l.Unauthenticated, 1, maxSockets},
		{"unauthenticated-per-host", l.UnauthenticatedPerHost, 1, maxSockets},
		{"links", l.Links, 1, most.Links},
		{"operations", l.Operations, 1, maxSockets},
		{"client-bytes", l.ClientBytes, 1, maxBytes},
		{"transaction-bytes", l.TransactionBytes, 1, maxBytes},
		{"metric-entities", l.MetricEntities, 1, catalog.MostEntities},
	}
}

const (
	maxSockets = 1 << 20 // more than any process may open
	maxBytes   = 1 << 40 // more than the memory of any node
)

// namespace returns those that the catalog judges by. Limits with their default value stay out of the log.
func (l *limits) namespace() catalog.Limits {
	set := func(is, other int) int {
		if is == other {
			return 0
		}
		return is
	}
	d := defaultLimits()
	return catalog.Limits{
		Entities:           set(l.Entities, d.Entities),
		Subscriptions:      set(l.Subscriptions, d.Subscriptions),
		SQLFilters:         set(l.SQLFilters, d.SQLFilters),
		CorrelationFilters: set(l.CorrelationFilters, d.CorrelationFilters),
		RuleChars:          set(l.RuleText, d.RuleText),
	}
}
