// Package rest is the HTTP management and operations API.
//
// The management API is the ATOM/XML surface that the admin clients of Azure Service Bus speak; it
// is served on the messaging port and on the operations port. The operations API, on the latter
// only, tells health, metrics and the state of the cluster. The package parses, authorises,
// validates and renders; entities are kept by the catalog behind [Entities].
//
// It never answers a management request before the token is verified and the right is there. It never reads a body
// that has no limit, and never tells a client the text of an internal error.
//
// # Where things are
//
// From the top down: a file uses what stands below it, with few exceptions.
//
//   - operations.go, operations_commands.go, health.go: what the operations port answers
//   - overview.go: entities with their counts, as JSON
//   - operator_serve.go: a request of an operator about the inside of an entity, from its token to its answer
//   - sample.go: rules are tried on a message that somebody describes
//   - operator_one.go, operator_move.go, operator_acts.go, operator_release.go, operator_state.go, operator_suspend.go: what
//     operators do to messages, sessions and entities
//   - operator_reasons.go, operator_views.go, operator_filter.go, operator_options.go, operator_stale.go, operator.go: what they see
//   - audited.go: what the audit log calls requests
//   - api.go: a request to the management API, from its token to its answer
//   - validate.go, rules.go, subscription.go, list.go, entity.go: what it is about
//   - authrules.go, feed.go, rulexml.go, document.go, describe.go, description.go, options.go: descriptions, both ways
//   - config.go, route.go, duration.go, problem.go, xml.go: limits, paths, durations, refusals, and the words of XML
//
// Start with api.go, then entity.go.
package rest
