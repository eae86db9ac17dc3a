// Package cluster knows which nodes exist, which partitions they host and how to reach them. All of
// that is a hint, and a wrong one is corrected by a peer's refusal (reliability.md 6.2). The catalog
// decides about membership, and raft about leadership.
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
// Start with Mesh.Call in call.go, then link.go.
package cluster
