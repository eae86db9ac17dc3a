package backup

import (
	"errors"
	"fmt"
)

// Damage says that a backup is not what was written, and where. Nothing behind that place was handed out.
type Damage struct {
	File   string
	Chunk  int64 // number of the chunk, or -1 where there is none
	Offset int64 // of the chunk in the file, before encryption
	Reason string
}

func (d *Damage) Error() string {
	file := d.File
	if file == "" {
		file = "the stream"
	}
	if d.Chunk < 0 {
		return fmt.Sprintf("%s is damaged at byte %d: %s", file, d.Offset, d.Reason)
	}
	return fmt.Sprintf("%s is damaged in chunk %d at byte %d: %s", file, d.Chunk, d.Offset, d.Reason)
}

// IsDamage tells whether an error is about the content of a backup, and not about reading it.
func IsDamage(err error) bool {
	var d *Damage
	return errors.As(err, &d)
}

// Sentinels of what is wrong with a request for a backup.
var (
	// ErrUnfinished: there are files and no backup.json, because the backup was not finished.
	ErrUnfinished = errors.New("the backup was not finished: it has no backup.json")
	// ErrKeys: no identity or passphrase that was given opens the backup.
	ErrKeys = errors.New("the backup is encrypted, and no identity or passphrase that was given opens it")
)

// errSealBroken is in the error of an encrypted file that is not what was written.
var errSealBroken = errors.New("it cannot be decrypted, because its bytes are not those that were written")
