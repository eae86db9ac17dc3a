package main

import (
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport"
)

// limits are what clients meet as a quota (S-229). Each is checked by the node that a request comes to, or
// by the leader of the entity: a namespace has one set of limits only if all its nodes have the same.
type limits struct {
	Entities            int `yaml:"entities"`
	Subscriptions       int `yaml:"subscriptions"`
	SQLFilters          int `yaml:"sql-filters"`
	CorrelationFilters  int `yaml:"correlation-filters"`
	RuleText            int `yaml:"rule-text"`
	TransactionMessages int `yaml:"transaction-messages"`
	ConcurrentReceives  int `yaml:"concurrent-receives"`
}

func defaultLimits() limits {
	return limits{
		Entities: catalog.MaxEntities, Subscriptions: catalog.MaxSubscriptions,
		SQLFilters: catalog.MaxSQLFilters, CorrelationFilters: catalog.MaxCorrelationFilters,
		RuleText:            rule.MaxExpressionChars,
		TransactionMessages: transport.Defaults().MaxTransactionMessages,
		ConcurrentReceives:  partition.Defaults().MaxReceives,
	}
}

func (l *limits) validate(bad func(string, ...any)) {
	most := defaultLimits() // most may be lowered only
	most.Entities = catalog.MostEntities
	most.ConcurrentReceives = partition.Defaults().MaxParked
	for _, f := range []struct {
		name    string
		is, max int
	}{
		{"entities", l.Entities, most.Entities}, {"subscriptions", l.Subscriptions, most.Subscriptions},
		{"sql-filters", l.SQLFilters, most.SQLFilters},
		{"correlation-filters", l.CorrelationFilters, most.CorrelationFilters},
		{"rule-text", l.RuleText, most.RuleText},
		{"transaction-messages", l.TransactionMessages, most.TransactionMessages},
		{"concurrent-receives", l.ConcurrentReceives, most.ConcurrentReceives},
	} {
		if f.is < 1 || f.is > f.max {
			bad("limits: %s is %d, want 1 to %d", f.name, f.is, f.max)
		}
	}
}

// namespace returns those that the catalog judges by. What is as it is by default stays out of the log.
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
