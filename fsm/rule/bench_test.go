package rule

import "testing"

func BenchmarkMatch(b *testing.B) {
	for _, predicate := range []string{
		"1=1",
		"color = 'red' AND quantity > 10",
		"sys.Label LIKE 'or%er' AND color IN ('blue', 'green', 'red')",
	} {
		b.Run(predicate, func(b *testing.B) {
			f, err := Parse(predicate, nil)
			if err != nil {
				b.Fatal(err)
			}
			var m Message = &message{
				user: []Property{{Name: "Color", Value: OfString("red")},
					{Name: "Quantity", Value: OfInt(7)}},
				system: map[SystemProperty]Value{Label: OfString("order")},
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Match(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("color = 'red' AND quantity > 10", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// Evaluation is on the path of every send to a topic, so it must leave the heap alone.
func TestMatchingAllocatesNothing(t *testing.T) {
	for _, predicate := range []string{
		"color = 'red' AND quantity > 10",
		"sys.Label LIKE 'or%' OR [two words] + 1 IN (3, 4) AND NOT EXISTS(missing)",
		"missing IS NULL AND p('color') = 'red'",
	} {
		f, err := Parse(predicate, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := sample()
		got := testing.AllocsPerRun(100, func() {
			if _, err := f.Match(m); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations", predicate, got)
		}
	}
}
