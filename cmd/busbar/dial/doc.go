// Package dial is how a command reaches a broker: the connection string, AMQP with a token, the management
// API, and the form of what is printed. It knows no command.
//
// # Where things are
//
//   - target.go: the flags that reach a broker, the connection string, tokens
//   - wire.go: one AMQP connection, and requests to nodes such as $cbs and $management
//   - management.go: the management API: queues, pages of a feed
//   - errors.go: AMQP conditions and their exit codes
//   - output.go: tables and JSON
//
// Start with Flags.Target and Connect.
package dial
