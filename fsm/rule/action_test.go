package rule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// told writes changes as an action would.
func told(changes []Change) []string {
	var lines []string
	for _, c := range changes {
		name := c.Name
		if c.System != NoProperty {
			name = "sys." + c.System.String()
		}
		if c.Remove {
			lines = append(lines, "remove "+name)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s = %s", name, c.Value))
	}
	return lines
}

// S-220, T-203.
func TestActions(t *testing.T) {
	for _, c := range []struct {
		name, action string
		want         []string
	}{
		{"set creates", "SET fresh = 1", []string{"fresh = integer:1"}},
		{"set replaces", "SET quantity = quantity / 2", []string{"quantity = integer:3"}},
		{"semicolons are optional", "SET a = 1; SET b = 2 SET c = 3;",
			[]string{"a = integer:1", "b = integer:2", "c = integer:3"}},
		{"later statements see earlier ones", "SET a = quantity + 1 SET b = A * 2 SET [a] = b + a",
			[]string{"a = integer:24", "b = integer:16"}},
		{"remove", "REMOVE color", []string{"remove color"}},
		{"remove what is missing", "REMOVE missing", []string{"remove missing"}},
		{"what is removed is unknown", "REMOVE color SET c = color", []string{"remove color", "c = null:"}},
		{"remove what was set", "SET a = 1 REMOVE a", []string{"remove a"}},
		{"set what was removed", "REMOVE price SET price = 1", []string{"price = integer:1"}},
		{"a missing property is null", "SET a = missing + 1", []string{"a = null:"}},
		{"null", "SET color = NULL", []string{"color = null:"}},
		{"an integer becomes the double that was there", "SET price = 3", []string{"price = double:3"}},
		{"a double replaces an integer", "SET quantity = 1.5", []string{"quantity = double:1.5"}},
		{"another kind replaces", "SET quantity = 'many'", []string{"quantity = string:many"}},
		{"every kind", "SET a = 'x' SET b = TRUE SET c = 1.5 SET d = guid SET e = due SET f = due - made " +
			"SET g = decimal SET h = blob SET i = huge",
			[]string{"a = string:x", "b = boolean:true", "c = double:1.5",
				"d = guid:01020300-0000-0000-0000-000000000000", "e = dateTime:10000000000",
				"f = duration:6000000000", "g = decimal:0102", "h = binary:78797a",
				"i = integer:18446744073709551615"}},
		{"a condition in parentheses", "SET a = (quantity = 7)", []string{"a = boolean:true"}},
		{"concatenation", "SET [two words] = color + '-' + color", []string{"two words = string:red-red"}},
		{"system properties", "SET sys.Label = 'x' SET sys.MessageId = sys.Label + '1' SET a = sys.Subject",
			[]string{"sys.Label = string:x", "sys.MessageId = string:x1", "a = string:x"}},
		{"scopes", "SET user.a = 1 REMOVE USER.color REMOVE sys.label",
			[]string{"a = integer:1", "remove color", "remove sys.Label"}},
		{"null clears a system property", "SET sys.Label = NULL SET a = sys.Label",
			[]string{"remove sys.Label", "a = null:"}},
		{"a guid becomes the text of an id", "SET sys.CorrelationId = guid",
			[]string{"sys.CorrelationId = string:01020300-0000-0000-0000-000000000000"}},
		{"times", "SET sys.ScheduledEnqueueTime = due SET sys.TimeToLive = due - made",
			[]string{"sys.ScheduledEnqueueTimeUtc = dateTime:10000000000",
				"sys.TimeToLive = duration:6000000000"}},
		{"parameters", "SET a = @p + 1", []string{"a = integer:6"}},
		{"case of the first spelling stays", "SET Fresh = 1 SET FRESH = 2", []string{"Fresh = integer:2"}},
		{"all settable", "SET sys.To='a' SET sys.ReplyTo='b' SET sys.ReplyToSessionId='c' " +
			"SET sys.SessionId='d' SET sys.ContentType='e' SET sys.PartitionKey='f' SET sys.ViaPartitionKey='g'",
			[]string{"sys.To = string:a", "sys.ReplyTo = string:b", "sys.ReplyToSessionId = string:c",
				"sys.SessionId = string:d", "sys.ContentType = string:e", "sys.PartitionKey = string:f",
				"sys.ViaPartitionKey = string:g"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := ParseAction(c.action, []Property{{Name: "@p", Value: OfInt(5)}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := a.Apply(sample())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(told(got), c.want) {
				t.Errorf("\n got %v\nwant %v", told(got), c.want)
			}
		})
	}
}

// S-220, S-221: what an action may not do fails when it is applied.
func TestActionsThatFail(t *testing.T) {
	for _, c := range []struct{ action, want string }{
		{"SET sys.Nonsense = 1", "character 5: there is no system property Nonsense"},
		{"REMOVE sys.Nonsense", "character 8: there is no system property Nonsense"},
		{"SET a = sys.Nonsense", "character 9: there is no system property Nonsense"},
		{"SET sys.Label = 5", "character 17: Label is of kind string and cannot take a value of kind integer"},
		{"SET sys.TimeToLive = 5",
			"character 22: TimeToLive is of kind duration and cannot take a value of kind integer"},
		{"SET sys.TimeToLive = made - due", "character 27: TimeToLive must be at least a millisecond"},
		{"SET sys.ScheduledEnqueueTimeUtc = '2026'",
			"character 35: ScheduledEnqueueTimeUtc is of kind dateTime and " +
				"cannot take a value of kind string"},
		{"SET sys.MessageId = '" + strings.Repeat("é", 129) + "'",
			"character 21: MessageId is longer than 128 characters"},
		{"SET a = 1 SET b = 1 / 0", "character 21: division by zero"},
		{"SET a = color * 2", "character 15: * has no meaning for values of kind string and integer"},
	} {
		a, err := ParseAction(c.action, nil)
		if err != nil {
			t.Fatal(err)
		}
		changes, err := a.Apply(sample())
		var evaluation *EvaluationError
		if !errors.As(err, &evaluation) || changes != nil {
			t.Errorf("%s: got %v, %v, want an evaluation error and no changes", c.action, changes, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "evaluation error at "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.action, got, c.want)
		}
	}
	for p := NoProperty + 1; p < systemProperties; p++ {
		if systemTable[p].settable {
			continue
		}
		for _, text := range []string{"SET sys.%s = NULL", "REMOVE sys.%s"} {
			a, err := ParseAction(fmt.Sprintf(text, p), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = a.Apply(sample()); err == nil || !strings.Contains(err.Error(), "cannot be changed") {
				t.Errorf(text+": got %v", p, err)
			}
		}
	}
	if a, err := ParseAction("SET sys.MessageId = '"+strings.Repeat("é", 128)+"'", nil); err != nil {
		t.Error(err)
	} else if _, err = a.Apply(sample()); err != nil {
		t.Errorf("128 characters: %v", err)
	}
}

func TestSyntaxErrorsOfActions(t *testing.T) {
	for _, c := range []struct{ action, want string }{
		{"", "at character 1: expected SET or REMOVE, found the end"},
		{"a = 1", "at character 1: expected SET or REMOVE, found a"},
		{"SET", "at character 4: expected a property, found the end"},
		{"SET a", "at character 6: expected =, found the end"},
		{"SET a = ", "at character 9: expected a value, found the end"},
		{"SET a = 1,", "at character 10: expected SET, REMOVE or the end, found ,"},
		{"SET a = 1;; SET b = 2", "at character 11: expected SET, REMOVE or the end, found ;"},
		{"SET a = b = 1", "at character 11: expected SET, REMOVE or the end, found ="},
		{"SET 'a' = 1", "at character 5: expected a property, found 'a'"},
		{"SET p('a') = 1", "at character 6: expected =, found ("},
		{"SET set = 1", "at character 5: expected a property, found set"},
		{"REMOVE", "at character 7: expected a property, found the end"},
		{"REMOVE a b", "at character 10: expected SET, REMOVE or the end, found b"},
		{"DELETE a", "at character 1: expected SET or REMOVE, found DELETE"},
		{strings.Repeat("SET a = 1 ", 33), "at character 321: more than 32 statements"},
	} {
		_, err := ParseAction(c.action, nil)
		if err == nil || strings.TrimPrefix(err.Error(), "syntax error ") != c.want {
			t.Errorf("%.40q:\n got %v\nwant %s", c.action, err, c.want)
		}
	}
	if _, err := ParseAction(strings.Repeat("SET a = 1 ", 32), nil); err != nil {
		t.Errorf("32 statements: %v", err)
	}
}
