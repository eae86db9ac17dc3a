package rest

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// infinite is the text of fsm.Unlimited: the largest value of the clients' 64-bit count of 100 ns.
const infinite = "P10675199DT2H48M5.4775807S"

// ticksPerMilli: durations are read in units of 100 ns, the clients' own.
const ticksPerMilli = 10_000

// Values this close to the largest are taken for it: Python computes it in floating point and
// misses by microseconds to either side.
const nearInfinite = ticksPerMilli

var errDuration = errors.New("no ISO 8601 duration")

// parseDuration reads an ISO 8601 duration: P[nY][nM][nD][T[nH][nM][n[.n]S]]; years and months
// count 365 and 30 days, as .NET has it. Negative values are refused, and a value beyond the infinite
// one is an error. part is what is below a millisecond, in units of 100 ns; for fsm.Unlimited it is what
// the value is short of the largest. It is shown again and decides nothing.
func parseDuration(text string) (d fsm.Millis, part uint16, err error) {
	ticks, err := parseTicks(text)
	if err != nil {
		return 0, 0, err
	}
	if ticks > math.MaxInt64-nearInfinite {
		return fsm.Unlimited, uint16(math.MaxInt64 - ticks), nil
	}
	return fsm.Millis(ticks / ticksPerMilli), uint16(ticks % ticksPerMilli), nil
}

// formatExact is the inverse of parseDuration.
func formatExact(d fsm.Millis, part uint16) string {
	switch {
	case part == 0:
		return formatDuration(d)
	case d >= fsm.Unlimited:
		return formatTicks(math.MaxInt64 - int64(part))
	}
	return formatTicks(int64(d)*ticksPerMilli + int64(part))
}

// parseTicks is parseDuration in units of 100 ns; what is a little beyond the largest value is that.
func parseTicks(text string) (int64, error) {
	rest, ok := strings.CutPrefix(text, "P")
	if !ok || rest == "" || strings.HasSuffix(rest, "T") {
		return 0, errDuration
	}
	date, clock, _ := strings.Cut(rest, "T")
	const second = 10_000_000
	const day = 86_400 * second
	ticks, err := addUnits(0, date, "YMD", [...]uint64{365 * day, 30 * day, day})
	if err != nil {
		return 0, err
	}
	ticks, err = addUnits(ticks, clock, "HMS", [...]uint64{3600 * second, 60 * second, second})
	if err != nil {
		return 0, err
	}
	if ticks > math.MaxInt64+nearInfinite {
		return 0, fmt.Errorf("%w below %s", errDuration, infinite)
	}
	return int64(min(ticks, math.MaxInt64)), nil
}

// addUnits reads numbers, each followed by its letter, in the order of letters. Only seconds may
// have a fraction.
func addUnits(sum uint64, text, letters string, unit [3]uint64) (uint64, error) {
	for next := 0; text != ""; {
		end := strings.IndexFunc(text, func(r rune) bool { return r > '9' || r < '.' })
		if end <= 0 {
			return 0, errDuration
		}
		which := strings.IndexByte(letters[next:], text[end])
		if which < 0 {
			return 0, errDuration
		}
		which += next
		whole, fraction, dotted := strings.Cut(text[:end], ".")
		if dotted && (letters[which] != 'S' || fraction == "") {
			return 0, errDuration
		}
		n, err := digits(whole)
		if err != nil {
			return 0, err
		}
		var part uint64 // digits beyond 100 ns are checked and dropped
		if dotted {
			if _, err := digits(fraction); err != nil {
				return 0, err
			}
			if part, err = digits((fraction + "000000")[:7]); err != nil {
				return 0, err
			}
		}
		high, low := bits.Mul64(n, unit[which])
		total, carry := bits.Add64(sum, low, 0)
		if high != 0 || carry != 0 || total > math.MaxUint64-part {
			return 0, fmt.Errorf("%w below %s", errDuration, infinite)
		}
		sum, text, next = total+part, text[end+1:], which+1
	}
	return sum, nil
}

func digits(text string) (uint64, error) {
	if text == "" || len(text) > 18 { // 18 digits stay below 2^63
		return 0, errDuration
	}
	var n uint64
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, errDuration
		}
		n = n*10 + uint64(text[i]-'0')
	}
	return n, nil
}

// formatDuration writes d the way .NET does: no unit that is zero, PT0S for nothing.
func formatDuration(d fsm.Millis) string {
	if d >= fsm.Unlimited {
		return infinite
	}
	if d <= 0 {
		return "PT0S"
	}
	const (
		second = 1000
		minute = 60 * second
		hour   = 60 * minute
		day    = 24 * hour
	)
	var out strings.Builder
	out.WriteByte('P')
	if d >= day {
		fmt.Fprintf(&out, "%dD", d/day)
	}
	if d%day == 0 {
		return out.String()
	}
	out.WriteByte('T')
	if n := d % day / hour; n > 0 {
		fmt.Fprintf(&out, "%dH", n)
	}
	if n := d % hour / minute; n > 0 {
		fmt.Fprintf(&out, "%dM", n)
	}
	if n := d % minute; n > 0 {
		out.WriteString(fmt.Sprint(n / second))
		if n%second > 0 {
			out.WriteString(strings.TrimRight(fmt.Sprintf(".%03d", n%second), "0"))
		}
		out.WriteByte('S')
	}
	return out.String()
}

// formatTicks writes a duration in units of 100 ns, also a negative one.
func formatTicks(ticks int64) string {
	sign := ""
	n := uint64(ticks)
	if ticks < 0 {
		sign, n = "-", -n
	}
	if n%ticksPerMilli == 0 || n >= math.MaxInt64 {
		return sign + formatDuration(fsm.Millis(n/ticksPerMilli))
	}
	const second = 10_000_000
	fraction := strings.TrimRight(fmt.Sprintf(".%07d", n%second), "0")
	whole := fsm.Millis(n / second * 1000)
	text := formatDuration(whole)
	switch {
	case whole == 0:
		return sign + "PT0" + fraction + "S"
	case strings.HasSuffix(text, "S"):
		return sign + strings.TrimSuffix(text, "S") + fraction + "S"
	case strings.Contains(text, "T"):
		return sign + text + "0" + fraction + "S"
	}
	return sign + text + "T0" + fraction + "S"
}

// longClock is clockDuration for a bound; the largest is written as .NET has it.
func longClock(d fsm.Millis) string {
	if d >= fsm.Unlimited {
		return "10675199.02:48:05.4775807"
	}
	return clockDuration(d)
}

// clockDuration writes d as error messages of the service do: d.hh:mm:ss.
func clockDuration(d fsm.Millis) string {
	s := d / 1000
	clock := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		clock = fmt.Sprintf("%d.%s", days, clock)
	}
	if ms := d % 1000; ms > 0 {
		clock += fmt.Sprintf(".%03d0000", ms)
	}
	return clock
}
