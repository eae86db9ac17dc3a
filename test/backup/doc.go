// Package backup tests the store of backups that is like S3, against a server that speaks its protocol. The server is a
// dependency of the tests alone, so these tests are not beside the code.
//
// Start with TestABackupInS3.
package backup
