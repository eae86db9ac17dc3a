// Package faultfs is a file system in memory that forgets what was not synced, tears writes, runs
// full and fails when told to. It implements storage.FS and is imported by tests only.
//
// After a [FS.Crash] a file has what it held at its last Sync. Of the writes since then it has any that
// the given chance lets live, the last of them perhaps in part. A directory has the names at its last
// SyncDir, and of the changes since then a prefix, because file systems keep the order of these. Without chance nothing that was not synced survives.
//
// Start with [New]; [FS.Inject] and [FS.StopAfter] plan errors, [FS.Trace] tells what was done.
package faultfs
