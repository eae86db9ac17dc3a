package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// boltFile makes a bolt file by commits that leave free pages behind: a bucket on pages of its own with
// branches, one on its parent's page, and a value that takes several pages.
func boltFile(t *testing.T, name string) {
	t.Helper()
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err := db.Update(func(tx *bbolt.Tx) error {
			many, err := tx.CreateBucketIfNotExists([]byte("many"))
			if err != nil {
				return err
			}
			for i := range 12 {
				err = errors.Join(err, many.Put(fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte{byte(round)}, 900)))
			}
			few, err2 := tx.CreateBucketIfNotExists([]byte("few"))
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(few.Put([]byte("m"), []byte("value")),
				many.Put([]byte("long"), make([]byte, 4096*(round+1))))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// useBolt reads and changes everything of a bolt file, and returns the error that bolt may say.
func useBolt(name string) error {
	return guard(name, func() error {
		db, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true})
		if err != nil {
			return err
		}
		defer db.Close() //nolint:errcheck // of a copy
		err = db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
				_ = b.Get([]byte("m"))
				return b.ForEach(func(_, v []byte) error { _ = append([]byte{}, v...); return nil })
			})
		})
		return errors.Join(err, db.Update(func(tx *bbolt.Tx) error {
			for _, name := range []string{"few", "many"} {
				if b := tx.Bucket([]byte(name)); b != nil {
					if err := b.Put([]byte("m"), []byte("new")); err != nil {
						return err
					}
				}
			}
			return nil
		}))
	})
}

// TestBoltIsGivenNoPageOutOfBounds flips the bits of a bolt file one by one. Bolt trusts what stands on
// its pages: what it is given may be wrong in a value, but nothing makes it read or write elsewhere. With
// the race detector, which looks at pointers too, that would end the process.
func TestBoltIsGivenNoPageOutOfBounds(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	boltFile(t, whole)
	if err := checkBolt(whole); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	refused, used, unusable := 0, 0, 0
	for at, c := range text {
		if c == 0 && at%page >= boltPageHeader+8*boltElement || c != 0 && at > 0 && text[at-1] == c {
			continue // room that nobody has, and all but the first byte of a value
		}
		for bit := range 8 {
			if c == 0 && bit != at%8 {
				continue
			}
			name := filepath.Join(dir, "flipped")
			text[at] ^= 1 << bit
			err := os.WriteFile(name, text, 0o600)
			text[at] ^= 1 << bit
			if err != nil {
				t.Fatal(err)
			}
			switch err := checkBolt(name); {
			case errors.Is(err, ErrCorrupt):
				refused++
				continue
			case err != nil:
				t.Fatalf("bit %d of byte %d: %v", bit, at, err)
			}
			if useBolt(name) == nil {
				used++
			} else {
				unusable++
			}
		}
	}
	t.Logf("%d refused, %d used, %d found unusable by bolt", refused, used, unusable)
	if refused < 500 || used < 500 {
		t.Errorf("%d refused and %d used of %d bytes", refused, used, len(text))
	}
}
