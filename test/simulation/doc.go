// Package simulation runs whole clusters in a bubble of virtual time, with faults that a seed draws, and has package
// check judge what clients saw.
//
// Everything is real but the clock, the network and the disks. One seed draws the work, the cuts of the network, the
// crashes and the drift of the clocks. The scheduler of Go is not drawn, so a seed need not run the same way twice.
//
// # Where things are
//
//   - run.go, bubble.go, world.go, final.go: one run, its phases, and what must hold at its end
//   - computer.go, node.go, disk.go, clock.go, net.go, gossip.go: a computer, the node on it, and what the node believes
//     to be its surroundings
//   - machine.go: state machines whose digests are compared
//   - client.go, senders.go, workers.go, shared.go, others.go, relay.go: clients, and what they ask for
//   - nemesis.go, nemesis_members.go, nemesis_upgrade.go, nemesis_backup.go, trap.go: the faults
//   - program.go: programs of several cluster versions, and what a node of each may meet
//   - watch.go, homes.go: where replicas, votes and nodes should be, while the faults last and at the end
//   - lab.go, count.go: a small cluster for tests, counters of a run
//
// The acceptance scenarios of the specification are in package scenario below. Start with TestSeed in run_test.go.
package simulation
