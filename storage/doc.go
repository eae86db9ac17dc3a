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
// From the top down: a file uses what stands below it, with few exceptions.
//
//   - dir.go, life.go, ballast.go, unused.go, replica.go: the data directory, what it knows of groups and nodes, spare disk space
//   - group.go: one group, opened and closed
//   - restore.go, sink.go, snapread.go, snapshot.go: snapshots, written and read
//   - inline.go, pin.go, block.go, chunk.go: bodies in snapshots and backups, and their checksums
//   - put.go, compact.go, bodies.go, writebuffer.go, cache.go, record.go, segment.go: bodies of messages and segments
//   - log.go, logend.go: the log as raft sees it
//   - stable.go, bolt.go, boltpages.go: votes, and checks of bolt files
//   - walseal.go, walentry.go, walfile.go, walahead.go, waldirect.go, sweep.go: raft-wal with cheaper writes
//   - hard.go, config.go: settings, and those that never change
//   - file.go, locked.go, fs_unix.go, fs_windows.go, fs.go, direct_linux.go, direct_other.go: small files, and the seam to the file system
//
// Start with [Open], then [Dir.Group]. The bytes are described in docs/formats/directory.md,
// snapshot.md and segments.md. docs/formats/crashes.md tells what a crash
// leaves, write by write.
package storage
