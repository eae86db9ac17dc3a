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
// Start with [State.Apply]; its behaviour is told by the scripts in testdata.
package fsm
