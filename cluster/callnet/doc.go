// Package callnet carries calls between the nodes of a test, in memory and with faults. It takes the place of the mesh
// where a test is about what calls bring about: the tests of package partition, and the simulation. Package simnet is the
// network below the mesh. Neither is part of a running broker.
//
// A [Net] has a [Port] for each life of a node, and a link for each pair of nodes. Ways are cut one by one. A test chooses
// what a cut does by [Config.Silence]: the link breaks at once, or calls wait until the link is given up.
//
// Start with [New] and [Port.Call].
package callnet
