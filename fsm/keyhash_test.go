package fsm

import "testing"

// S-313: the hash is fixed and documented; these vectors must never change.
func TestHashGolden(t *testing.T) {
	for _, tc := range []struct {
		text string
		hash uint64
		of4  int
		of7  int
	}{
		{"", 0xefd01f60ba992926, 2, 1},
		{"a", 0x82a2a958a9bece5b, 3, 1},
		{"session-1", 0xf267abb32d450b1f, 3, 0},
		{"session-2", 0x2c141066c5aa3638, 0, 3},
		{"\x00", 0xb9034ad37056f5fb, 3, 2},
		{"Größe", 0xe504efb774d003a6, 2, 5},
	} {
		if got := KeyHash(tc.text); got != tc.hash || KeyShare(tc.text, 4) != tc.of4 || KeyShare(tc.text, 7) != tc.of7 {
			t.Errorf("{%q, %#x, %d, %d},", tc.text, got, KeyShare(tc.text, 4), KeyShare(tc.text, 7))
		}
	}
}

// S-313: keys that differ only at the end spread evenly.
func TestHashSpreads(t *testing.T) {
	const keys, shares = 16000, 16
	var count [shares]int
	for i := range keys {
		count[KeyShare("session-"+string(rune('a'+i%26))+string(rune(0x100+i)), shares)]++
	}
	for i, n := range count {
		if n < keys/shares*8/10 || n > keys/shares*12/10 {
			t.Errorf("share %d has %d of %d keys", i, n, keys)
		}
	}
}

func BenchmarkKeyShare(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		KeyShare("customer-4711/order-123456", 16)
	}
}
