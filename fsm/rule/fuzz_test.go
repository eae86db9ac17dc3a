package rule

import (
	"math"
	"reflect"
	"testing"
	"unicode/utf8"
)

var seeds = []string{
	"color = 'red' AND quantity > 10", "sys.Label LIKE 'a!%%' ESCAPE '!'", "NOT EXISTS(a) OR b IS NOT NULL",
	"a IN (1, 2.5, 'x', NULL, TRUE)", "p('sys.' + a) = newid()", "-(a + 1) * 2 % 3 / 0 = 0x1F",
	"[a]]b] = \"c\"\"d\"", "@p = user.x", "((((a", "SET a = 1; REMOVE b SET sys.Label = a + 'x'", "'\xff",
	"a LIKE b ESCAPE c", "due - made > @p",
}

// FuzzParse looks for panics, and for texts that compile twice to different programs.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	parameters := []Property{{Name: "@p", Value: OfInt(1)}}
	f.Fuzz(func(t *testing.T, s string) {
		filter, err := Parse(s, parameters)
		again, errAgain := Parse(s, parameters)
		if !reflect.DeepEqual(filter, again) || !reflect.DeepEqual(err, errAgain) {
			t.Fatal("two compilations differ")
		}
		checkFailure(t, err)
		action, err := ParseAction(s, parameters)
		checkFailure(t, err)
		if filter != nil && action != nil {
			t.Fatal("both a filter and an action")
		}
	})
}

func checkFailure(t *testing.T, err error) {
	if err == nil {
		return
	}
	if len(err.Error()) > 300 || !utf8.ValidString(err.Error()) {
		t.Fatalf("an error of %d bytes: %q", len(err.Error()), err)
	}
}

// FuzzEvaluate looks for panics, for endless work, and for evaluations that are not repeatable.
func FuzzEvaluate(f *testing.F) {
	for _, s := range seeds {
		f.Add(s, "red", int64(7), 2.5)
	}
	f.Add("a / b = c", "", int64(math.MinInt64), math.NaN())
	f.Fuzz(func(t *testing.T, s, a string, n int64, x float64) {
		fresh := func() *message {
			m := sample()
			m.user = append([]Property{{Name: "a", Value: OfString(a)}, {Name: "b", Value: OfInt(n)},
				{Name: "c", Value: OfFloat(x)}, {Name: "d", Value: OfDateTime(n)},
				{Name: "e", Value: OfDuration(n)}}, m.user...)
			return m
		}
		parameters := []Property{{Name: "p", Value: OfString(a)}, {Name: "q", Value: OfDuration(n)}}
		if filter, err := Parse(s, parameters); err == nil {
			got, err := filter.Match(fresh())
			again, errAgain := filter.Match(fresh())
			if got != again || !reflect.DeepEqual(err, errAgain) || got && err != nil {
				t.Fatalf("got %v, %v and then %v, %v", got, err, again, errAgain)
			}
		}
		if action, err := ParseAction(s, parameters); err == nil {
			got, err := action.Apply(fresh())
			again, errAgain := action.Apply(fresh())
			if !reflect.DeepEqual(got, again) || !reflect.DeepEqual(err, errAgain) {
				t.Fatalf("got %v, %v and then %v, %v", got, err, again, errAgain)
			}
			for _, c := range got {
				if c.System != NoProperty && !c.Remove && c.Value.Kind() != c.System.Kind() {
					t.Fatalf("%s = %s", c.System, c.Value)
				}
			}
		}
	})
}

// FuzzDecodeSource looks for panics, and for bytes that decode to what is written otherwise.
func FuzzDecodeSource(f *testing.F) {
	for _, s := range sources() {
		f.Add(s.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSource(b)
		if err != nil {
			checkFailure(t, err)
			return
		}
		again, err := DecodeSource(s.Append(nil))
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("got %+v, then %+v, %v", s, again, err)
		}
		_, err = s.Compile()
		checkFailure(t, err)
	})
}
