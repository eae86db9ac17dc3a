package transport

// This file is the arithmetic of credit and windows. Ids and counts on the wire are 32-bit serial
// numbers that wrap around (RFC 1982), so they are compared by their difference only.

// serialLess reports whether a comes before b.
func serialLess(a, b uint32) bool { return int32(a-b) < 0 }

// maxWindow is the most of anything that we take from one flow frame. A peer may announce up to
// 2^32-1; above half the number space serial arithmetic has no meaning.
const maxWindow = 1<<31 - 1

// remaining returns what is left of a peer's grant of credit or window. The peer said "amount from count on" and we
// are at ours already. It is never negative (AMQP 1.0 §2.5.6, §2.6.7).
func remaining(count, amount, ours uint32) uint32 {
	amount = min(amount, maxWindow)
	used := ours - count // serial
	if int32(used) < 0 {
		// The peer counts ahead of us: it cannot have seen more than we sent, so it is confused or
		// hostile; its grant counts from where we are.
		used = 0
	}
	if used >= amount {
		return 0
	}
	return amount - used
}

// senderCredit returns the credit that a sending link gets, at most limit and at least 1 (A21). It is the number of
// its largest messages that fit into its share of memory.
func senderCredit(limit uint32, linkBytes int, maxMessage uint64) uint32 {
	if maxMessage == 0 {
		return 1
	}
	n := uint64(linkBytes) / maxMessage
	return uint32(max(1, min(n, uint64(limit))))
}
