package rest

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

func TestParseDuration(t *testing.T) {
	const day = 86_400_000
	for text, want := range map[string]fsm.Millis{
		"PT1M":                        60_000,
		"PT0.0015S":                   1, // parts of a millisecond are dropped
		"PT1.5S":                      1500,
		"PT1.123456789S":              1123,
		"P1DT2H3M4.5S":                day + 2*3_600_000 + 3*60_000 + 4500,
		"PT90M":                       90 * 60_000,
		"P1Y2M3D":                     (365 + 60 + 3) * day,
		"P7D":                         7 * day,
		"PT0S":                        0,
		infinite:                      fsm.Unlimited,
		"P10675199DT2H48M5.477539S":   fsm.Unlimited, // Python, below
		"P10675199DT2H48M5.477581S":   fsm.Unlimited, // Python, above
		"P10675199DT2H48M5.4768S":     fsm.Unlimited,
		"P10675199DT2H48M5.476S":      fsm.Unlimited - 1,
		"PT922337203685S":             922_337_203_685_000,
		"P0Y0M0DT0H0M0.000S":          0,
		"PT000000000000000001H":       3_600_000,
		"P10675199DT2H48M5.47758079S": fsm.Unlimited,
	} {
		if got, _, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "P", "PT", "P1", "PT1", "1M", "T1M", "-PT1M", "P-1D", "PT1M1M", "PT1S1M", "P1H", "PT1D",
		"P1DT", "PT1.S", "PT.5S", "PT1.5M", "PT1..5S", "PT1.5.5S", "PT1,5S", "pt1m", " PT1M", "PT1M ",
		"PT1é", "PT/S", "P1W", "PT1MT1S", "00:01:00", "PT1.5xS",
		"P10675200D", "P99999999D", "PT9223372036855S", "P999999999999999999Y",
		"PT9999999999999999999S", "P30000Y30000Y", "PT0.1234567890123456789S",
	} {
		if got, _, err := parseDuration(text); err == nil {
			t.Errorf("%q: got %d", text, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]fsm.Millis{
		"PT0S":           0,
		"PT0.001S":       1,
		"PT1.5S":         1500,
		"PT1M":           60_000,
		"PT1H1S":         3_601_000,
		"P1D":            86_400_000,
		"P14DT2H3M4.25S": 14*86_400_000 + 2*3_600_000 + 3*60_000 + 4250,
		infinite:         fsm.Unlimited,
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
	for want, d := range map[string]fsm.Millis{
		"00:00:00":         0,
		"25.00:00:00":      25 * 86_400_000,
		"01:02:03.0450000": 3_723_045,
	} {
		if got := clockDuration(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func FuzzDuration(f *testing.F) {
	f.Add("P1Y2M3DT4H5M6.7S")
	f.Add(infinite)
	f.Fuzz(func(t *testing.T, text string) {
		d, _, err := parseDuration(text)
		if err != nil {
			return
		}
		if d < 0 || d > fsm.Unlimited {
			t.Fatalf("%q is %d", text, d)
		}
		if again, _, err := parseDuration(formatDuration(d)); err != nil || again != d {
			t.Fatalf("%q is %d, written %s, read %d, %v", text, d, formatDuration(d), again, err)
		}
	})
}
