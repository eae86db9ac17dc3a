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
//   - state.go: the state, Apply, and the dispatch of commands
//   - command.go, command_move.go, traits.go: the commands, and what they are to other packages
//   - outcome.go, refusal.go, errors.go: what a command answers, and how a proposal ends
//   - query.go, answer.go, browse.go, reading.go: questions, and their answers
//   - entity.go, descriptor.go, share.go: entities, their settings, and the part of one that a partition has
//   - queue.go, lock.go, settle.go, pause.go, ttl.go, deadline.go: messages, locks, times
//   - session.go, shared.go, and files that begin with session: sessions
//   - duplicate.go, delete.go, redrive.go, revoke.go, history.go, idle.go: features of one page each
//   - topic.go, topic_rules.go, view.go, and package rule: topics and their rules
//   - move.go, origin.go: forwarding, exactly once
//   - transaction.go, reserve.go: transactions
//   - large.go, bodies.go: bodies in parts, bodies of several messages
//   - request.go: remembered answers
//   - codec.go and files that begin with codec: the bytes of entries and outcomes
//   - snapshot.go, restore.go, invariant.go: images, and what must hold
//   - dense.go, token.go, keyhash.go: tables and hashes
//
// # The commands, by purpose
//
//   - Messages in: [Enqueue], [Reserve], [Cancel], [BodyPart] for a large body
//   - Messages out: [Lock], [Settle], [Renew], [Receive] of deferred ones, [DropLocks] of a lost connection
//   - Sessions: [AcceptSession], [WatchSession], [RenewSession], [ReleaseSession], [SetSessionState]
//   - Several at once: [Commit]
//   - From one entity to another: [Transfer], [Forward]
//   - Many messages: [DeleteMessages], [Redrive]
//   - An operator: [Revoke]
//   - Entities: [PutEntity], [DropEntity], [Touch]
//   - Leadership, time and nodes: [BecomeLeader], [Tick], [Barrier], [NodeLost], [DropPumps]
//   - The catalog: [Change], whose content package catalog knows
//
// Start with [State.Apply]; its behaviour is told by the scripts in testdata.
package fsm
