package partition

import "github.com/busbar-mq/busbar/fsm"

// HashVersion names the function below in the hard settings of a data directory: changing it would
// move messages to other shares, so it never changes within a cluster (S-313, S-320).
const HashVersion = 1

// hashText hashes the bytes of a key.
func hashText(text string) uint64 { return fsm.KeyHash(text) }

// ShareOf returns the index of the share, of n, that messages with this key text belong to
// (S-313).
func ShareOf(text string, n int) int { return fsm.KeyShare(text, n) }
