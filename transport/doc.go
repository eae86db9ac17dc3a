// Package transport is the AMQP 1.0 front end: listeners, connections, channels, links, and the
// request nodes $cbs and $management.
//
// It turns wire words (transfer, disposition) into commands of package fsm at one place, translate.go. It knows
// nothing of partitions, Raft or disks: behind it is a Broker with three verbs. It never keeps a message that the
// broker has not made durable.
//
// Start with conn.go, the loop that owns a connection.
package transport
