// Package cluster knows which nodes exist, which partitions they host and how to reach them. All of
// that is a hint: a peer's refusal corrects a wrong one. The catalog decides about membership, and raft about
// leadership.
//
// Five things live here. [Mesh] carries bytes between nodes over one authenticated connection per
// pair. Small calls are coalesced on one stream of it, and snapshots have streams of their own (A11, A15). [Gossip]
// finds the nodes and their addresses (memberlist). [View] remembers who leads which partition, the
// newest term wins. [Place] spreads replicas over nodes and is pure. [Bootstrap] fixes the first
// member list of the catalog exactly once (A20).
//
// The room must never decide by gossip what only a log may decide, panic on bytes of a peer, or hold
// anything without a bound; every bound is a field of [Config] with its reason. The bytes on the wire
// are told by docs/formats/mesh.md and docs/formats/gossip.md.
//
// # Where things are
//
//   - mesh.go, call.go, begin.go, serve.go: the mesh, calls to other nodes, their handlers
//   - peer.go, hello.go, identity.go, versions.go, refusals.go: another node, how it is dialled, and the first frame each way
//   - secure.go: TLS and the names in certificates
//   - link.go, frame.go, output.go: one connection, its frames, its queue
//   - stream.go, bulk.go: bodies of any length, as snapshots are
//   - gossip.go, keyring.go, members.go, delegate.go, news.go, gossipcodec.go: which nodes live, and what they say of themselves
//   - view.go: who is believed to lead
//   - placement.go: which node gets which replica
//   - bootstrap.go, bootstrapcodec.go: the first members of the catalog
//   - network.go, and package simnet: TCP, and the network of tests
//   - package tick: when loops that look every second or more often do so
//
// Start with Mesh.Call in call.go, then link.go.
package cluster
