// Package storage owns every byte that a node keeps on disk. It owns the identity of the node, the formats of its
// data, and the data of each raft group. A group has a log, votes, snapshots and the bodies of messages.
//
// It knows nothing of queues, sessions or partitions: a group is a number, an entry is bytes. It
// starts no election and sends nothing to anybody.
//
// These must hold, whatever the disk does:
//   - bytes from the disk are checked before use. A wrong checksum, a hole or a term that goes back is an error that
//     names the file or the index. It is never a panic and never a guess (A15, R3);
//   - a small file is the old one or the new one after a crash, never half of each;
//   - after one failed write or sync of a log or of the bodies the store takes no other write. So nothing can follow
//     data that reached the disk despite the error (R3);
//   - a vote is one value under one key (R9, RUL-14);
//   - a segment of bodies lives as long as a message, a snapshot or a reader needs it (A9).
//
// Everything that we write ourselves goes through the seam [FS], which package faultfs implements
// with crashes and errors. The log (raft-wal or raft-boltdb) and the votes (raft-boltdb) are the
// exception: these libraries use the operating system's files directly.
//
// # Where things are
//
//   - dir.go, hard.go, life.go, replica.go: the data directory, its identity, what it knows of groups and of nodes
//   - file.go, fs.go, fs_unix.go: small files, and the seam to the file system
//   - ballast.go: disk space that is kept for bad days
//   - group.go: one group, opened and closed
//   - log.go, logend.go: the log as raft sees it
//   - walentry.go, walfile.go, waldirect.go, walahead.go, walseal.go, sweep.go: raft-wal with cheaper writes
//   - stable.go, bolt.go, boltpages.go: votes, and checks of bolt files
//   - bodies.go, put.go, writebuffer.go, cache.go: the bodies of messages, as they come
//   - segment.go, record.go, compact.go: segments, and how they are emptied
//   - pin.go, block.go, restore.go: bodies in snapshots
//   - snapshot.go, sink.go, chunk.go, snapread.go: snapshots
//
// Start with [Open], then [Dir.Group]. The bytes are described in docs/formats/directory.md,
// snapshot.md and segments.md. docs/formats/crashes.md tells what a crash
// leaves, write by write.
package storage
