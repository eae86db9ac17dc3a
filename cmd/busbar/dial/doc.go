// Package dial connects commands to a broker: by a connection string, over AMQP with a token, and over the
// management API. It also prints tables, JSON and YAML. It knows no command.
//
// # Where things are
//
//   - context.go, context_unix.go, context_other.go: brokers to which a user has given names
//   - target.go: the flags that reach a broker, the connection string, tokens
//   - wire.go: one AMQP connection, and requests to nodes such as $cbs and $management
//   - management.go: the management API: queues, pages of a feed
//   - errors.go: AMQP conditions and their exit codes
//   - watch.go: commands that look again and again
//   - output.go, reform.go: tables, JSON, and other forms made of that
//
// Start with Flags.Target and Connect.
package dial
