package rule

import (
	"math"
	"testing"
)

// S-219: operators promote as in C#.
func TestArithmetic(t *testing.T) {
	askAll(t, []question{
		{"5 / 2 = 2", isTrue}, // integers stay integers
		{"-5 / 2 = -2", isTrue},
		{"5 / -2 = -2", isTrue},
		{"5 % 2 = 1", isTrue},
		{"-5 % 2 = -1", isTrue},
		{"5 % -2 = 1", isTrue},
		{"5.0 / 2 = 2.5", isTrue},
		{"5 / 2.0 = 2.5", isTrue},
		{"5.5 % 2 = 1.5", isTrue},
		{"quantity / 2 = 3", isTrue},
		{"quantity + price = 9.5", isTrue},
		{"quantity - price = 4.5", isTrue},
		{"quantity * price = 17.5", isTrue},
		{"3 - 7 = -4", isTrue},
		{"7 - 3 = 4", isTrue},
		{"-3 - 7 = -10", isTrue},
		{"-7 + 3 = -4", isTrue},
		{"3 * -4 = -12", isTrue},
		{"-3 * -4 = 12", isTrue},
		{"0 * -4 = 0", isTrue},
		{"min % -1 = 0", isTrue},
		{"min + 1 < 0", isTrue},
		{"min = -9223372036854775808", isTrue},
		{"9223372036854775807 - 1 = 9223372036854775806", isTrue},
		{"huge > 9223372036854775807", isTrue},
		{"huge - 1 < huge", isTrue},
		{"huge % 10 = 5", isTrue},
		{"huge / 3 = 6148914691236517205", isTrue},
		{"huge > -1", isTrue},
		{"huge > 1.5", isTrue},
		{"huge - huge = 0", isTrue},
		{"min < huge", isTrue},
		{"color + '!' = 'red!'", isTrue},
		{"'a' + 'b' + 'c' = 'abc'", isTrue},
		{"--5 = 5", isTrue},
		{"-(-5) = +5", isTrue},
		{"-price = -2.5", isTrue},
	})
}

// S-219: comparisons, and values of kinds that have nothing in common.
func TestComparisons(t *testing.T) {
	askAll(t, []question{
		{"quantity = 7", isTrue},
		{"quantity = 7.0", isTrue},
		{"quantity <> 7", isFalse},
		{"quantity != 8", isTrue},
		{"quantity < 7", isFalse},
		{"quantity <= 7", isTrue},
		{"quantity > 6.9", isTrue},
		{"quantity >= 8", isFalse},
		{"-3 < -2", isTrue},
		{"-2 < -3", isFalse},
		{"-3 = -3", isTrue},
		{"color = 'red'", isTrue},
		{"color = 'Red'", isFalse}, // ordinal: case counts
		{"color > 'Red'", isTrue},
		{"color < 'redder'", isTrue},
		{"'' < 'a'", isTrue},
		{"yes = TRUE", isTrue},
		{"yes <> no", isTrue},
		{"guid = guid", isTrue},
		{"guid <> newid()", isTrue},
		{"due > made", isTrue},
		{"due = made", isFalse},
		// A numeric filter does not match a numeric-looking string.
		{"digits = 5", isFalse},
		{"digits <> 5", isTrue},
		{"digits > 4", unknown},
		{"digits <= 4", unknown},
		{"digits IN (5, 6)", isFalse},
		{"digits NOT IN (5, 6)", isTrue},
		{"digits IN (4, '5')", isTrue},
		{"yes = 1", isFalse},
		{"guid = 'x'", isFalse},
		// Opaque values compare with nothing.
		{"decimal = decimal", unknown},
		{"blob <> 'xyz'", unknown},
		{"blob IN (1)", unknown},
		{"decimal IS NOT NULL", isTrue},
	})
	nan := &message{user: []Property{{Name: "nan", Value: OfFloat(math.NaN())}}}
	for _, q := range []question{
		{"nan = nan", isFalse}, {"nan <> nan", isTrue}, {"nan <> 1", isTrue}, {"1 < nan", isFalse},
	} {
		f, err := Parse(q.predicate, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Match(nan); err != nil || got != (q.want == isTrue) {
			t.Errorf("%s: got %v, %v", q.predicate, got, err)
		}
	}
}

// S-219: the difference of two times is a duration, which compares with a parameter.
func TestTimes(t *testing.T) {
	tenMinutes := Property{Name: "@d", Value: OfMillis(600_000)}
	then := Property{Name: "@t", Value: OfTimestamp(1_000_000)}
	far := Property{Name: "@far", Value: OfDuration(math.MaxInt64)}
	askAll(t, []question{
		{"due - made = @d", isTrue},
		{"due - made > @d", isFalse},
		{"made + @d = due", isTrue},
		{"@d + made = due", isTrue},
		{"due - @d = made", isTrue},
		{"due = @t", isTrue},
		{"@d + @d > @d", isTrue},
		{"@d - @d = due - due", isTrue},
		{"-@d < @d", isTrue},
		{"+@d = @d", isTrue},
		{"sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = sys.TimeToLive", isTrue},
		{"due = @d", isFalse},
		{"due > @d", unknown},
		{"due + due = @t", fails},
		{"@d - due = @t", fails},
		{"due * 2 = @t", fails},
		{"@d + 1 = @d", fails},
		{"due + @far > due", fails},
		{"@far + @d > @d", fails},
	}, tenMinutes, then, far)
}

func TestTimesStayInTheirRange(t *testing.T) {
	for _, c := range []struct {
		got, want int64
	}{
		{OfTimestamp(math.MaxInt64).Ticks(), maxDateTime},
		{OfTimestamp(math.MinInt64).Ticks(), minDateTime},
		{OfMillis(math.MaxInt64).Ticks(), math.MaxInt64},
		{OfMillis(math.MinInt64).Ticks(), math.MinInt64},
		{OfMillis(922337203685477).Millis(), 922337203685477},
		{OfTimestamp(-5).Millis(), -5},
	} {
		if c.got != c.want {
			t.Errorf("got %d, want %d", c.got, c.want)
		}
	}
}
