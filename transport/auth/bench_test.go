package auth

import (
	"testing"
	"time"
)

// A token is verified for every management request and every put-token.
func BenchmarkVerify(b *testing.B) {
	p := newPolicies(b)
	token := NewToken("https://host.test:5300/orders?api-version=2024-05", root, rootKey,
		now.Add(time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Verify(token, now); err != nil {
			b.Fatal(err)
		}
	}
}
