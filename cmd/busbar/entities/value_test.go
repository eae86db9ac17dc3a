package entities

import "testing"

func TestSameValues(t *testing.T) {
	for _, tc := range []struct {
		name, got, want string
		same            bool
	}{
		{"LockDuration", "PT1M30S", "PT90S", true}, {"LockDuration", "PT1M", "PT90S", false},
		{"RequiresSession", "true", "True", true}, {"MaxDeliveryCount", "3", "4", false},
		{"ForwardTo", "sb://localhost/Q", "q", true}, {"ForwardTo", "sb://localhost/q", "p", false},
		{"MaxSizeInMegabytes", "16384", "1024", true}, {"MaxSizeInMegabytes", "2048", "1024", false},
		{"RetryMin", "", "PT0S", true}, {"RetryMin", "", "PT1S", false}, {"NoDeadLetter", "", "false", true},
		{"DefaultMessageTimeToLive", "P1Y", "P365D", true}, {"UserMetadata", "P", "PT", false},
	} {
		if got := sameValue(tc.name, tc.got, tc.want); got != tc.same {
			t.Errorf("%s: %q and %q are the same: %t", tc.name, tc.got, tc.want, got)
		}
	}
}
