// Package bench is the load generator: it loads a broker over AMQP 1.0 and measures throughput, latency and what a
// message costs. It speaks to a broker as any client does, and knows nothing of a node.
//
// # Where things are
//
//   - bench.go: the command line, and what it refuses
//   - dialer.go: the connections of a run
//   - run.go: a run: senders, the backlog, the measured time
//   - receive.go: receivers, settlement, sessions
//   - histogram.go, process.go, report.go: what is counted, and how it is shown
//   - raft.go, frontend.go: parts of a broker that are measured alone
//
// Start with measure in run.go.
package bench
