// Package fsm is the pure state machine of one partition: queues, sessions, locks and their
// deadlines.
//
// It never reads a clock, draws a random number, starts a goroutine, does I/O or imports another room. Time and
// chance arrive as numbers inside an Entry. [State.Apply] is a function of (state, entry) alone, so every replica
// that applies the same log holds the same state (S-281). The package also owns the words that travel between the
// rooms: ids, commands, outcomes, queries.
//
// Units: [Millis] is a duration, [Wall] a point of the wall clock, [Lease] a point of the partition's
// lease clock. The compiler keeps the two clocks apart (S-285). Sizes are bytes.
//
// # Where things are
//
// From the top down: a file uses what stands below it, with few exceptions.
//
//   - versions.go: since which cluster version nodes know which command, change, call and form of bytes
//   - answer.go, browse.go: queries, answered from the state
//   - census.go, export.go, putback.go, hold.go: backups: what a state holds, and how it is put back
//   - rehome.go, rehome_image.go: a share moves to another partition
//   - invariant.go, invariant_topic.go: what must hold in every state
//   - restore.go, restore_large.go, restore_move.go, restore_share.go, snapshot.go, snapshot_share.go: a state from an
//     image, and an image of it
//   - apply.go, transaction.go, request.go: an entry, its requests, and remembered answers
//   - entity.go, reclaim.go, deadline.go, idle.go: entities come and go, and what time ends in them
//   - redrive.go, delete.go, revoke.go: commands for operators
//   - enqueue.go, origin.go, topic.go, topic_rules.go, view.go, move.go: messages come in, by way of a topic too, and
//     move to other entities exactly once
//   - shared.go, sessionlock.go: locks of sessions, shared and exclusive
//   - lock.go, settle.go, ttl.go, pause.go: locks of messages, and their ends
//   - queue.go, reserve.go, session.go, duplicate.go, large.go, history.go, drops.go, tally.go: one message in its queue and its
//     session, and what is remembered of it
//   - bodies.go, state.go, share.go, transit.go, due.go: what a state and a share hold
//   - sessionindex.go, token.go, sessionids.go, sparse.go, dense.go: tables
//   - codec_entry.go, codec_command.go, codec_move.go, codec_large.go, codec_backup.go, codec_rehome.go, codec_history.go, codec_outcome.go,
//     codec_descriptor.go, codec.go, reader.go: the bytes of entries, commands and answers
//   - query.go, command_internal.go, command_move.go, command_large.go, command_backup.go, command_rehome.go, command.go, traits.go: questions and commands,
//     and what the commands are to other packages
//   - descriptor.go, outcome.go, refusal.go, version.go, errors.go, reading.go, id.go, keyhash.go: settings of entities,
//     answers, and the smallest words
//
// The package stored has the bytes of a message, the package rule the language of rules.
//
// [Command] lists the commands by purpose.
//
// Start with [State.Apply]; its behaviour is told by the scripts in testdata.
package fsm
