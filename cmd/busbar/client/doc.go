// Package client is the command line of users and operators. Its commands ask or change a running broker over AMQP,
// the management API and the operations port. None of them starts a node.
//
// # Where things are
//
// From the top down: a file uses what stands below it, with few exceptions.
//
//   - context.go, reset.go: names for brokers; a development node is emptied, and tokens
//   - queue.go, entities.go: queues and files of entities, by the management API
//   - dlq_edit.go, dlq.go, redrive.go, numbered.go, purge.go, release.go, options.go, suspend.go: what an operator changes of an entity
//   - locks.go, transactions.go, inspect_commands.go, inspect.go: what the operations port shows of it
//   - session.go, settle.go, receive.go, receive_number.go, messages_import.go, messages.go, tail.go, peek.go, send.go, schedule.go: messages, as any client of AMQP sees them,
//     and as lines of JSON
//   - backup_create.go, backup_verify.go, backup_restore.go, backup_calls.go, backup.go: backups, and the images of partitions
//     that the operations port hands out and takes
//   - audit.go, recover.go: the audit of replicas, and a majority that is lost for good
//   - connections.go, events.go, top.go: who is connected to any node, and what changes
//   - healthcheck.go, cluster_health.go, cluster_upgrade.go, cluster_nodes.go, cluster_rehome.go, cluster_moves.go, cluster.go: nodes, leaders,
//     versions, what is wrong, and a probe
//   - print.go, format.go, bar.go, args.go: messages and progress on a terminal, and the arguments of commands
//
// Start with NewQueueCommand, or with NewReceiveCommand for AMQP.
package client
