package entities

import (
	"regexp"
	"strconv"
	"strings"
)

// writtenDuration takes an ISO 8601 duration apart.
var writtenDuration = regexp.MustCompile(
	`^P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// Unlimited is the duration of a property that has no limit.
const Unlimited = "P10675199DT2H48M5.4775807S"

// secondsOf reads a duration; years and months count as the broker counts them.
func secondsOf(text string) (float64, bool) {
	parts := writtenDuration.FindStringSubmatch(text)
	if parts == nil || text == "P" {
		return 0, false
	}
	sum := 0.0
	for i, unit := range [...]float64{365 * 86400, 30 * 86400, 86400, 3600, 60, 1} {
		if n, err := strconv.ParseFloat(parts[i+1], 64); err == nil {
			sum += n * unit
		}
	}
	return sum, true
}

// partitionedSizes: a partitioned entity reports that many times the size that was asked for.
const partitionedSizes = 16

// sameValue reports whether a broker that says got has what a file wants.
func sameValue(name, got, want string) bool {
	switch {
	case strings.EqualFold(got, want):
		return true
	case strings.HasPrefix(name, "Forward"):
		return strings.EqualFold(TargetOf(got), TargetOf(want))
	case name == "MaxSizeInMegabytes":
		a, errA := strconv.ParseUint(got, 10, 64)
		b, errB := strconv.ParseUint(want, 10, 64)
		return errA == nil && errB == nil && a == b*partitionedSizes
	case isOption(name) && got == "" && (want == "0" || strings.EqualFold(want, "false") || want == "PT0S"):
		return true
	}
	a, okA := secondsOf(got)
	b, okB := secondsOf(want)
	return okA && okB && a == b
}

// divided is the size that was asked for, of a partitioned entity.
func divided(size string) string {
	n, err := strconv.ParseUint(size, 10, 64)
	if err != nil {
		return size
	}
	return strconv.FormatUint(n/partitionedSizes, 10)
}

// typedValue is a value as a file has it: a truth value, a number or a text.
func typedValue(text string) any {
	switch text {
	case "true", "false":
		return text == "true"
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && strings.Trim(text, "-.0123456789eE+") == "" {
		return f
	}
	return text
}
