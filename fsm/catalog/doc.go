// Package catalog is the pure state machine of group 0: which entities, partitions and nodes exist.
//
// Like package fsm it never reads a clock, draws a random number or does I/O. Its commands travel as
// fsm.Change with a JSON text inside, because they are few, and whoever debugs a cluster wants to
// read them. Every node holds a replica, so every node reads it locally, through a [View] that
// never changes.
//
// Start with [State.Apply] and [Change].
package catalog
