package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
)

// Numbers of the format. All integers in it are little endian, and CRC is CRC-32C.
const (
	// Format is the version that this package writes and reads.
	Format = 1
	// ChunkBytes is the content of each chunk but the last two of a file.
	ChunkBytes = 1 << 20

	magic          = "BBAK"
	headBytes      = 32 // magic, format, number of the file, id of the backup, CRC
	chunkHeadBytes = 16 // number of the file, number of the chunk, length, CRC
	idBytes        = 16

	// maxChunks bounds a file to 4 PiB: the number of a chunk has 32 bits.
	maxChunks = 1<<32 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ID names a backup. It is drawn for each, so that files of two backups are not taken for one another.
type ID [idBytes]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes 32 hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) != 2*idBytes {
		return fmt.Errorf("an id of %d digits, want %d", len(text), 2*idBytes)
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// Sum is the SHA-256 of the content of a file.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText writes 64 hexadecimal digits.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads 64 hexadecimal digits.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) != 2*sha256.Size {
		return fmt.Errorf("a SHA-256 of %d digits, want %d", len(text), 2*sha256.Size)
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// Extent is how much content a file has, and its sum.
type Extent struct {
	Bytes  uint64 `json:"bytes"`  // of content, without heads of chunks
	Chunks uint64 `json:"chunks"` // with content
	SHA256 Sum    `json:"sha256"` // of the content
}

// chunkSum is the CRC over the head of a chunk, without the CRC itself, and what follows.
func chunkSum(head, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:12], castagnoli), castagnoli, rest)
}
