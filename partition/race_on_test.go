//go:build race

package partition

import "testing"

// longUnderRace skips a test that takes ten seconds and more with the race detector, in the short form. make test runs
// it without the detector, and make nightly with it.
func longUnderRace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long with the race detector: make test runs it without, too")
	}
}
