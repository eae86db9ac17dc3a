// Package check decides whether what clients saw, and what the replicas' logs hold, is what a broker
// may do.
//
// A [History] is what clients did and saw, and trusts nobody; a [Witness] is the committed logs of the
// partitions, read from the replicas' stores. Every checker is one entry of [BlackBox] or [Witnesses]
// and is named after the invariant that it guards (I1 to I26 of docs/testing.md). Each has a canary: a
// history made by hand and a broker broken on purpose, which that checker must catch.
//
// The package starts no broker and knows no faults. Start with [Op], then black.go.
package check
