package fsm

// HashVersion names the function below in the hard settings of a data directory. Another function would move messages
// to other shares, so it never changes within a cluster (S-313, S-320).
const HashVersion = 1

// The constants of FNV-1a, 64 bits, and of the finalizer of MurmurHash3. The finalizer spreads FNV's weak low bits
// for texts that differ only at the end.
const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
	mixOne    = 0xff51afd7ed558ccd
	mixTwo    = 0xc4ceb9fe1a85ec53
)

// KeyHash hashes the bytes of a key: FNV-1a, then the finalizer. It never changes within a cluster
// (S-313, S-320).
func KeyHash(text string) uint64 {
	h := uint64(fnvOffset)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	h = (h ^ h>>33) * mixOne
	h = (h ^ h>>33) * mixTwo
	return h ^ h>>33
}

// KeyShare returns the index of the share, of n, that messages with this key text belong to (S-313).
func KeyShare(text string, n int) int { return int(KeyHash(text) % uint64(n)) }
