//go:build !race

package partition

import "testing"

func longUnderRace(*testing.T) {}
