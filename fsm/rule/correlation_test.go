package rule

import "testing"

func text(s string) *string { return &s }

// with is a correlation filter on one application property.
func with(name string, v Value) Correlation {
	return Correlation{Properties: []Property{{Name: name, Value: v}}}
}

// S-218, T-201.
func TestCorrelation(t *testing.T) {
	for _, c := range []struct {
		name string
		c    Correlation
		want bool
	}{
		{"one field", Correlation{Label: text("order")}, true},
		{"case counts in values", Correlation{Label: text("Order")}, false},
		{"all fields must match", Correlation{Label: text("order"), MessageID: text("m-2")}, false},
		{"two fields", Correlation{Label: text("order"), MessageID: text("m-1")}, true},
		{"a field that the message lacks", Correlation{SessionID: text("")}, false},
		{"a property", with("color", OfString("red")), true},
		{"names in any case", with("COLOR", OfString("red")), true},
		{"values in one", with("color", OfString("RED")), false},
		{"no patterns", with("color", OfString("r%")), false},
		{"two properties", Correlation{Properties: []Property{{Name: "color", Value: OfString("red")},
			{Name: "quantity", Value: OfInt(8)}}}, false},
		{"fields and properties", Correlation{Label: text("order"),
			Properties: []Property{{Name: "quantity", Value: OfInt(7)}}}, true},
		{"numbers by value", with("quantity", OfFloat(7)), true},
		{"a number is no string", with("digits", OfInt(5)), false},
		{"a missing property", with("missing", OfInt(5)), false},
		{"missing is not null", with("missing", Value{}), false},
		{"null is null", with("nothing", Value{}), true},
		{"boolean", with("yes", OfBool(true)), true},
		{"guid", with("guid", OfGuid([16]byte{1, 2, 3})), true},
		{"decimals by their bytes",
			with("decimal", OfDecimal("\x01\x02")), true},
		{"a name with a scope is only a name",
			with("user.color", OfString("red")), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := NewCorrelation(&c.c)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.Match(sample()); err != nil || got != c.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// S-218: each field looks at its own property.
func TestCorrelationFields(t *testing.T) {
	var c Correlation
	for i, f := range c.fields() {
		c = Correlation{}
		*c.fields()[i].text = text("x")
		filter, err := NewCorrelation(&c)
		if err != nil {
			t.Fatal(err)
		}
		for p := NoProperty + 1; p < systemProperties; p++ {
			m := &message{system: map[SystemProperty]Value{p: OfString("x")}}
			if got, _ := filter.Match(m); got != (p == f.property) {
				t.Errorf("field of %s, message with %s: got %v", f.property, p, got)
			}
		}
	}
}

func TestCorrelationFiltersThatAreNone(t *testing.T) {
	for name, c := range map[string]Correlation{
		"nothing to compare": {},
		"no name":            {Properties: []Property{{Value: OfInt(1)}}},
		"twice":              {Properties: []Property{{Name: "a"}, {Name: "A"}}},
		"broken name":        {Properties: []Property{{Name: "a\xff"}}},
		"broken value":       {Properties: []Property{{Name: "a", Value: OfString("\xff")}}},
	} {
		if _, err := NewCorrelation(&c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
