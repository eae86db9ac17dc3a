// Package manage is the part of the command line that creates, lists, shows, changes and deletes queues, topics,
// subscriptions and rules by the management API. The same code serves the three kinds of entities: properties.go has one
// table of their properties, and each row is a flag.
//
// # Where things are
//
//   - entity.go: the commands of queues, topics and subscriptions
//   - delete.go: deletion, which asks first
//   - rule.go: the commands of rules
//   - ruletest.go: a filter and an action tried on a message that the command line describes
//   - print.go: entities and rules as tables and as JSON
//   - properties.go: the properties as flags
//   - span.go: durations
//
// Start with AddCommands.
package manage
