// Package client is the command line of users and operators. Its commands ask or change a running broker over AMQP,
// the management API and the operations port. None of them starts a node.
//
// # Where things are
//
//   - send.go, schedule.go, receive.go, peek.go: messages, as any client of AMQP sees them
//   - messages.go, messages_import.go: messages as lines of JSON, out and in
//   - queue.go, entities.go: queues and files of entities, by the management API
//   - inspect.go, inspect_commands.go, locks.go, transactions.go: what the operations port shows of an entity
//   - purge.go, redrive.go, release.go, options.go, suspend.go: what an operator changes there
//   - cluster.go, cluster_upgrade.go, cluster_nodes.go, cluster_moves.go, cluster_health.go, audit.go,
//     healthcheck.go: nodes, leaders, versions, what is wrong, the audit of replicas, and a probe
//   - recover.go: a majority that is lost for good
//   - backup.go, backup_create.go, backup_verify.go, backup_restore.go, backup_calls.go: backups, and the images of partitions that
//     the operations port hands out and takes
//   - print.go, bar.go: messages and progress on a terminal
//
// Start with NewQueueCommand, or with NewReceiveCommand for AMQP.
package client
