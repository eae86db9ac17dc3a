// Package backup writes and reads backups of a cluster, in the form of docs/formats/backup.md. A backup lies in a directory, in
// a pipe or in a store like S3, encrypted by age or not. The package connects to no broker, and does not know what an
// image holds.
//
// All bytes that it reads are hostile. A reader hands out no byte that it has not verified, and its errors name the file,
// the chunk and the offset.
//
// # Where things are
//
// From the top down: a file uses what stands below it.
//
//   - make.go: a backup is written, backup.json last
//   - list.go: the backups of a store
//   - open.go, stream.go: a backup is read, from a store or from a pipe
//   - place.go: which store a user means
//   - s3.go, directory.go, store.go: where backups are
//   - seal.go: encryption
//   - manifest.go: backup.json
//   - write.go, read.go: one file, in chunks
//   - format.go, names.go, damage.go: numbers, names and errors of the format
//
// Start with Make and Open.
package backup
