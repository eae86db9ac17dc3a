package rulemap

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// Descriptors of what enumerate-rules answers; JavaScript compares the numbers (amqp-protocol.md 7.5).
const (
	CodeRuleDescription   uint64 = 0x0000013700000004
	CodeEmptyAction       uint64 = 0x0000013700000005
	CodeSQLAction         uint64 = 0x0000013700000006
	CodeSQLFilter         uint64 = 0x0000001370000006
	CodeTrueFilter        uint64 = 0x0000001370000007
	CodeFalseFilter       uint64 = 0x0000001370000008
	CodeCorrelationFilter uint64 = 0x0000001370000009

	// ruleCompatibility is the version of the language that the original names.
	ruleCompatibility int32 = 20
	// SymbolTimeSpan describes a duration in ticks, as .NET writes it.
	SymbolTimeSpan amqp.Symbol = "com.microsoft:timespan"
)

// Describe writes a rule as enumerate-rules answers it.
func Describe(r *fsm.Rule) amqp.Described {
	action := amqp.Described{Descriptor: CodeEmptyAction, Value: amqp.List{}}
	if r.Source.Action != "" {
		action = amqp.Described{Descriptor: CodeSQLAction, Value: amqp.List{r.Source.Action, ruleCompatibility}}
	}
	return amqp.Described{Descriptor: CodeRuleDescription, Value: amqp.List{
		describeFilter(&r.Source), action, r.Name, amqp.Timestamp(r.CreatedAt)}}
}

func describeFilter(s *rule.Source) amqp.Described {
	switch s.Kind {
	case rule.TrueFilter:
		return amqp.Described{Descriptor: CodeTrueFilter, Value: amqp.List{}}
	case rule.FalseFilter:
		return amqp.Described{Descriptor: CodeFalseFilter, Value: amqp.List{}}
	case rule.CorrelationFilter:
		list := amqp.List{}
		c := *s.Correlation
		for _, f := range correlationFields(&c) {
			if *f.text == nil {
				list = append(list, nil)
			} else {
				list = append(list, **f.text)
			}
		}
		props := amqp.Map{}
		for i := range c.Properties {
			p := &c.Properties[i]
			props = append(props, amqp.Pair{Key: p.Name, Value: wireValue(p)})
		}
		return amqp.Described{Descriptor: CodeCorrelationFilter, Value: append(list, props)}
	}
	return amqp.Described{Descriptor: CodeSQLFilter, Value: amqp.List{s.Expression, ruleCompatibility}}
}
