package waist

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// AllShares returns the indices of the entity's shares.
func AllShares(d *fsm.Descriptor) []int {
	shares := make([]int, max(1, len(d.Partitions)))
	for i := range shares {
		shares[i] = i
	}
	return shares
}

// SharesFrom returns the shares that hold number from and those behind it, in the order of their
// prefixes.
func SharesFrom(d *fsm.Descriptor, from fsm.SequenceNumber) []int {
	shares := AllShares(d)
	if !d.Partitioned {
		return shares
	}
	slices.SortFunc(shares, func(a, b int) int { return int(d.Prefix(a)) - int(d.Prefix(b)) })
	return slices.DeleteFunc(shares, func(i int) bool { return d.Prefix(i) < from.Prefix() })
}

// ShareKey names one share of an entity.
func ShareKey(d *fsm.Descriptor, sub fsm.SubQueue, share int) fsm.Key {
	return fsm.Key{Entity: d.ID, Sub: sub, By: fsm.ByShare, Share: uint16(share)}
}

// KeyOfToken names the share that a lock token came from, the first one for a token of another entity.
func KeyOfToken(d *fsm.Descriptor, sub fsm.SubQueue, token fsm.LockToken) fsm.Key {
	return ShareKey(d, sub, max(0, d.ShareOf(token.Prefix())))
}
