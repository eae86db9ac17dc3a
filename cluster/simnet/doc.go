// Package simnet is a network in memory for tests of a whole cluster in a synctest bubble. It has hosts with
// addresses, and streams that can be cut, delayed and reset. Packets for gossip go nowhere when
// the other end is gone. The package is never part of a running broker.
//
// A cut holds bytes back, as TCP does, until it is healed; only Kill closes connections. Start with
// [Test] and [New].
package simnet
