package rule

import "testing"

// S-219: every system property by its name and by the names of newer clients, in any case.
func TestSystemProperties(t *testing.T) {
	for p := NoProperty + 1; p < systemProperties; p++ {
		if p.String() == "" || p.Kind() == Null {
			t.Fatalf("property %d lacks name or kind", p)
		}
		if got := FindSystemProperty(p.String()); got != p {
			t.Errorf("%s: got %v", p, got)
		}
	}
	for name, want := range map[string]SystemProperty{
		"subject": Label, "MESSAGEID": MessageID, "ScheduledEnqueueTime": ScheduledEnqueueTime,
		"enqueuedTime": EnqueuedTime, "LockedUntil": LockedUntil, "ExpiresAt": ExpiresAt,
		"TransactionPartitionKey": ViaPartitionKey, "": NoProperty, "Body": NoProperty,
	} {
		if got := FindSystemProperty(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
	askAll(t, []question{
		{"sys.Subject = sys.Label", isTrue},
		{"sys.MessageId = 'm-1'", isTrue},
		{"sys.SequenceNumber % 2 = 0", isTrue},
		{"sys.DeadLetterSource IS NULL", isTrue},
		{"Label IS NULL", isTrue}, // unscoped is the user's
		{"sys.color = 'red'", fails},
	})
	if got := SystemProperty(200); got.String() != "" || got.Kind() != Null {
		t.Error("a property that is none has a name or kind")
	}
}

// S-224, T-206: newid() is a version 4 guid of the chance that the entry brings, each call another.
func TestNewIDComesFromTheMessage(t *testing.T) {
	a, err := ParseAction("SET a = newid() SET b = newid()", nil)
	if err != nil {
		t.Fatal(err)
	}
	var first []Change
	for range 2 {
		m := sample()
		got, err := a.Apply(m)
		if err != nil {
			t.Fatal(err)
		}
		if m.drawn != 2 {
			t.Errorf("drawn %d times, want 2", m.drawn)
		}
		if first == nil {
			first = got
		}
		if got[0].Value != first[0].Value || got[1].Value != first[1].Value {
			t.Error("the same chance gives another guid")
		}
	}
	if got, want := first[0].Value.String(), "guid:01010101-0101-4101-8101-010101010101"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if first[0].Value == first[1].Value {
		t.Error("two calls give one guid")
	}
}
