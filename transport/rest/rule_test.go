package rest

import (
	"math"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// ruleCase is a rule as a client writes it, and as it reads it again.
type ruleCase struct{ given, want string }

const (
	xsi       = ` xmlns:xsi="` + instanceSpace + `"`
	schema    = ` xmlns:l28="` + schemaSpace + `"`
	noAction  = `<Action i:type="EmptyRuleAction"/>`
	trueShape = `<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression>` +
		`<CompatibilityLevel>20</CompatibilityLevel></Filter>`
)

func parameters(list, inner string) string {
	return "<" + list + "><KeyValueOfstringanyType>" + inner + "</KeyValueOfstringanyType></" + list + ">"
}

// The type attributes and values of each SDK (1.10, A.6).
func ruleCases() map[string]ruleCase {
	value := func(kind, text string) string {
		return `<Value i:type="d6p1:` + kind + `" xmlns:d6p1="` + schemaSpace + `">` + text + `</Value>`
	}
	sql := func(text, list string) string {
		return `<Filter i:type="SqlFilter"><SqlExpression>` + text + `</SqlExpression>` +
			`<CompatibilityLevel>20</CompatibilityLevel>` + list + `</Filter>`
	}
	cases := map[string]ruleCase{
		"Go, true": {
			`<Filter xmlns:_XMLSchema-instance="` + instanceSpace + `" _XMLSchema-instance:type="TrueFilter">` +
				`<SqlExpression>1=1</SqlExpression></Filter>`, trueShape + noAction,
		},
		"nothing at all": {"", trueShape + noAction},
		".NET, false": {
			`<Filter p4:type="FalseFilter" xmlns:p4="` + instanceSpace + `"><SqlExpression>1=0` +
				`</SqlExpression></Filter><Action p4:type="EmptyRuleAction" xmlns:p4="` + instanceSpace + `"/>`,
			strings.ReplaceAll(strings.Replace(trueShape, "1=1", "1=0", 1), "True", "False") + noAction,
		},
		"JS, true": {
			`<Filter p4:type="SqlFilter" xmlns:p4="` + instanceSpace + `"><SqlExpression>1=1</SqlExpression>` +
				`</Filter>`, sql("1=1", "") + noAction,
		},
		"Python, with an action": {
			`<Filter xsi:type="SqlFilter"` + xsi + `><SqlExpression>a = @p</SqlExpression>` +
				`<CompatibilityLevel>20</CompatibilityLevel>` + parameters("Parameters", `<Key>@p</Key>`+
				`<Value xsi:type="d6p1:string" xmlns:d6p1="`+schemaSpace+`"> x </Value>`) +
				`<RequiresPreprocessing>true</RequiresPreprocessing></Filter>` +
				`<Action xsi:type="SqlRuleAction"` + xsi + `><SqlExpression>SET b = 1</SqlExpression></Action>`,
			sql("a = @p", parameters("Parameters", "<Key>@p</Key>"+value("string", " x "))+
				"<RequiresPreprocessing>true</RequiresPreprocessing>") +
				`<Action i:type="SqlRuleAction"><SqlExpression>SET b = 1</SqlExpression>` +
				`<CompatibilityLevel>20</CompatibilityLevel></Action>`,
		},
		"Java, correlation": {
			`<ns0:Filter xmlns:ns0="` + instanceSpace + `" ns0:type="CorrelationFilter">` +
				`<CorrelationId>c</CorrelationId><MessageId>m</MessageId><To>t</To><ReplyTo>r</ReplyTo>` +
				`<Label>l</Label><SessionId>s</SessionId><ReplyToSessionId>rs</ReplyToSessionId>` +
				`<ContentType>ct</ContentType></ns0:Filter>`,
			`<Filter i:type="CorrelationFilter"><CorrelationId>c</CorrelationId><MessageId>m</MessageId>` +
				`<To>t</To><ReplyTo>r</ReplyTo><Label>l</Label><SessionId>s</SessionId>` +
				`<ReplyToSessionId>rs</ReplyToSessionId><ContentType>ct</ContentType></Filter>` +
				noAction,
		},
		"an empty field is none": {
			`<Filter xsi:type="CorrelationFilter"` + xsi + `><CorrelationId/><Label>l</Label></Filter>`,
			`<Filter i:type="CorrelationFilter"><Label>l</Label></Filter>` + noAction,
		},
	}
	for _, v := range []struct{ kind, given, want string }{
		{"int", "5", "5"}, {"int", "9223372036854775807", "9223372036854775807"}, {"long", "5", "5"},
		{"double", "2.5", "2.5"}, {"double", "3.000000", "3"}, {"boolean", "True", "true"},
		{"dateTime", "2026-01-02T03:04:05.1234567Z", "2026-01-02T03:04:05.1234567Z"},
		{"dateTime", "2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z"},
		{"dateTime", "2020-07-05T11:12:13", "2020-07-05T11:12:13"}, // B4: without a zone, as it was sent
		{"duration", "P1DT2H", "P1DT2H"}, {"duration", "-PT0.0000001S", "-PT0.0000001S"},
		{"duration", "PT1M0.5S", "PT1M0.5S"}, {"duration", "PT1M0.00001S", "PT1M0.00001S"},
		{"duration", "P1DT0.00001S", "P1DT0.00001S"}, {"duration", "PT1.00001S", "PT1.00001S"},
		{"guid", "00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeff"},
		{"unsignedLong", "18446744073709551615", "18446744073709551615"}, {"string", "", ""},
		{"decimal", "1.25", "1.25"}, {"decimal", "-1.2500", "-1.2500"}, {"decimal", "79228162514264337593543950335",
			"79228162514264337593543950335"}, {"decimal", "0.0000000000000000000000000001", "0.0000000000000000000000000001"},
		{"double", "INF", "INF"}, {"double", "-INF", "-INF"}, {"double", "NaN", "NaN"}, {"float", "1.1", "1.1"},
		{"float", "-INF", "-INF"}, {"byte", "-128", "-128"}, {"unsignedByte", "255", "255"}, {"short", "-32768", "-32768"},
		{"unsignedShort", "65535", "65535"}, {"unsignedInt", "4294967295", "4294967295"}, {"char", "x", "x"},
		{"base64Binary", "AAEC", "AAEC"}, {"duration", "-P10675199DT2H48M5.4775808S", "-P10675199DT2H48M5.4775808S"},
	} {
		want := value(v.kind, v.want)
		if v.kind == "duration" || v.kind == "guid" || v.kind == "char" {
			want = strings.Replace(want, schemaSpace, serializationSpace, 1)
		}
		cases[v.kind+" "+v.given] = ruleCase{
			`<Filter xsi:type="CorrelationFilter"` + xsi + schema + `>` + parameters("Properties",
				`<Key>k</Key><Value xsi:type="l28:`+v.kind+`">`+v.given+`</Value>`) + `</Filter>`,
			`<Filter i:type="CorrelationFilter">` + parameters("Properties", "<Key>k</Key>"+want) +
				`</Filter>` + noAction,
		}
	}
	return cases
}

func ruleHouse(t *testing.T) *house {
	t.Helper()
	h := newHouse(t)
	h.put(t, "/t", "TopicDescription", "")
	h.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	return h
}

func TestRulesReadAsTheyWereWritten(t *testing.T) {
	for name, tc := range ruleCases() {
		t.Run(name, func(t *testing.T) {
			h := ruleHouse(t)
			status, text := h.do(t, "PUT", "/t/Subscriptions/s/Rules/R1",
				entryBody("RuleDescription", tc.given+"<Name>R1</Name>"))
			if status != 201 || !strings.Contains(text, tc.want) {
				t.Fatalf("got %d %s\nwant %s", status, text, tc.want)
			}
			_, again := h.do(t, "GET", "/T/subscriptions/S/rules/r1", "")
			for _, want := range []string{
				tc.want, "<Name>R1</Name>", `<title type="text">R1</title>`,
				"<id>https://host.test/t/subscriptions/s/rules/R1</id>",
				"<CreatedAt>2026-01-02T03:04:05.123Z</CreatedAt>",
			} {
				if !strings.Contains(again, want) {
					t.Errorf("no %s in %s", want, again)
				}
			}
			if strings.Contains(again, "<author>") {
				t.Error("a rule has an author")
			}
		})
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	filter := func(kind, inner string) string {
		return `<Filter xsi:type="` + kind + `"` + xsi + schema + `>` + inner + `</Filter>`
	}
	for name, tc := range map[string]struct{ elements, want string }{
		"an unknown filter":   {filter("DateTimeFilter", ""), "type of the filter is unknown"},
		"no SQL":              {filter("SqlFilter", "<SqlExpression>a = </SqlExpression>"), "rule is not valid"},
		"an empty expression": {filter("SqlFilter", ""), "rule is not valid"},
		"a correlation with nothing": {
			filter("CorrelationFilter", ""), "rule is not valid",
		},
		"an unknown parameter": {
			filter("SqlFilter", "<SqlExpression>a = @p</SqlExpression>"), "rule is not valid",
		},
		"an action that is none": {
			`<Action xsi:type="SqlRuleAction"` + xsi + `><SqlExpression>GIVE x</SqlExpression></Action>`,
			"rule is not valid",
		},
		"an unknown action": {
			`<Action xsi:type="RunAction"` + xsi + `/>`, "type of the action is unknown",
		},
		"an action without an expression": {
			`<Action xsi:type="SqlRuleAction"` + xsi + `/>`, "no expression",
		},
		"a number that is none": {
			filter("CorrelationFilter", parameters("Properties",
				`<Key>k</Key><Value xsi:type="l28:int">five</Value>`)), "not of the type int",
		},
		"a type that is none": {
			filter("CorrelationFilter", parameters("Properties",
				`<Key>k</Key><Value xsi:type="l28:gYear">2026</Value>`)), "type is not supported",
		},
		"a list of something else": {
			filter("CorrelationFilter", "<Properties><X/></Properties>"), "no key with a value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := ruleHouse(t)
			status, text := h.do(t, "PUT", "/t/Subscriptions/s/Rules/r",
				entryBody("RuleDescription", tc.elements))
			if status != 400 || !strings.Contains(text, tc.want) {
				t.Errorf("got %d %s", status, text)
			}
		})
	}
	h := ruleHouse(t)
	for target, want := range map[string]string{
		"/t/Subscriptions/s/Rules/" + strings.Repeat("r", 51): "the limit is 50",
		"/t/Subscriptions/s/Rules/a%3Fb":                      "not allowed by Service Bus",
		"/t/Subscriptions/s/Rules/":                           "no name of a rule",
	} {
		status, text := h.do(t, "PUT", target, entryBody("RuleDescription", ""))
		if status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", target, status, text)
		}
	}
	status, text := h.do(t, "PUT", "/t/Subscriptions/s/Rules/r", queueBody(""))
	if status != 400 || !strings.Contains(text, "not the description of a rule") {
		t.Errorf("a queue in a rule's place: %d %s", status, text)
	}
}

// S-229: a text that is too long is beyond a quota, not a mistake.
func TestATextOfMoreThan1024CharactersIsBeyondTheQuota(t *testing.T) {
	long := "<SqlExpression>" + strings.Repeat("a=1 OR ", 146) + "a=1</SqlExpression>"
	for name, elements := range map[string]string{
		"filter": `<Filter xsi:type="SqlFilter"` + xsi + schema + `>` + long + `</Filter>`,
		"action": `<Action xsi:type="SqlRuleAction"` + xsi + `>` + long + `</Action>`,
	} {
		h := ruleHouse(t)
		status, text := h.do(t, "PUT", "/t/Subscriptions/s/Rules/r", entryBody("RuleDescription", elements))
		if status != 403 || !strings.Contains(text, "SubCode=40300") || !strings.Contains(text, "1024 characters") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

func TestRulesAreListedReplacedAndDeleted(t *testing.T) {
	h := ruleHouse(t)
	body := func(name, expression string) string {
		return entryBody("RuleDescription", `<Filter xsi:type="SqlFilter"`+xsi+`><SqlExpression>`+
			expression+`</SqlExpression></Filter><Name>`+name+`</Name>`)
	}
	// Go leaves the name out of the path; frameworks name rules by inner types.
	for _, tc := range [][2]string{{"Rules/", "b"}, {"rules/A+c", "ignored"}} {
		status, text := h.do(t, "PUT", "/t/Subscriptions/s/"+tc[0], body(tc[1], "x = 1"))
		if status != 201 {
			t.Fatalf("%v: %d %s", tc, status, text)
		}
	}
	_, text := h.do(t, "GET", "/t/Subscriptions/s/Rules/?%24skip=0&%24top=2&api-version=2024-05", "")
	for _, want := range []string{
		`<title type="text">Rules</title>`, `<title type="text">$Default</title>`,
		`<title type="text">A+c</title>`,
		`href="https://host.test/t/Subscriptions/s/Rules?$skip=2&amp;$top=2&amp;api-version=2024-05"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for target, entries := range map[string]int{"?$skip=2": 1, "?$skip=3": 0, "": 3} {
		_, text := h.do(t, "GET", "/t/subscriptions/s/rules"+target, "")
		if n := strings.Count(text, "<entry"); n != entries {
			t.Errorf("%s: %d entries", target, n)
		}
	}
	for name, tc := range map[string]struct {
		method, target, expression string
		update                     bool
		status                     int
		want                       string
	}{
		"created twice":    {"PUT", "B", "x = 2", false, 409, "<Detail>The messaging entity 'sample:Topic:t|s|B' already exists."},
		"updated":          {"PUT", "B", "x = 2", true, 200, "x = 2"},
		"none updated":     {"PUT", "c", "x = 2", true, 404, "<Detail>Entity 'sample:Topic:t|s|c' was not found."},
		"none read":        {"GET", "c", "", false, 404, "<Detail>Entity 'sample:Topic:t|s|c' was not found."},
		"none deleted":     {"DELETE", "c", "", false, 404, "Entity 'sample:Topic:t|s|c' was not found."},
		"the list deleted": {"DELETE", "", "", false, 405, "not allowed"},
	} {
		var headers []string
		if tc.update {
			headers = []string{"If-Match", "*"}
		}
		status, text := h.do(t, tc.method, "/t/Subscriptions/s/Rules/"+tc.target,
			body("", tc.expression), headers...)
		if status != tc.status || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	response := h.response(t, "DELETE", "/t/Subscriptions/s/Rules/$default", "")
	if response.StatusCode != 200 || response.Header.Get("ETag") == "" {
		t.Errorf("delete: %d %v", response.StatusCode, response.Header)
	}
	if d := h.entities["t/subscriptions/s"]; d.Rule("$Default") != nil || len(d.Rules) != 2 {
		t.Errorf("left are %+v", d.Rules)
	}
	if status, _ := h.do(t, "GET", "/t/Subscriptions/none/Rules", ""); status != 404 {
		t.Errorf("rules of no subscription: %d", status)
	}
}

// RUL-38: a value that is not of its type is refused, and the answer names the value and the type.
func TestValuesBeyondTheirTypeAreRefused(t *testing.T) {
	h := ruleHouse(t)
	for _, c := range [...][2]string{{"byte", "128"}, {"unsignedByte", "256"}, {"unsignedByte", "-1"}, {"short", "32768"},
		{"unsignedShort", "65536"}, {"unsignedInt", "4294967296"}, {"unsignedLong", "-1"}, {"float", "1e39"},
		{"decimal", "10000000000000000000000000000000001"}, {"decimal", "1,5"}, {"base64Binary", "?"}} {
		status, text := h.do(t, "PUT", "/t/Subscriptions/s/Rules/r", entryBody("RuleDescription", `<Filter xsi:type="CorrelationFilter"`+
			xsi+schema+`>`+parameters("Properties", `<Key>k</Key><Value xsi:type="l28:`+c[0]+`">`+c[1]+`</Value>`)+`</Filter>`))
		if status != 400 || !strings.Contains(text, "not of the type "+c[0]) {
			t.Errorf("%s %s: %d %s", c[0], c[1], status, text)
		}
	}
}

// RUL-38: types that came over AMQP are shown over HTTP, but a uint is an int, for the sake of JavaScript.
func TestTypesThatCameOverAMQPAreShown(t *testing.T) {
	h := ruleHouse(t)
	d := h.entities["t/subscriptions/s"]
	price, _ := rule.ParseDecimal("19.90")
	d.Rules = append(d.Rules, fsm.Rule{Name: "amqp", Source: rule.Source{
		Kind: rule.CorrelationFilter, Correlation: &rule.Correlation{Properties: []rule.Property{
			{Name: "l", Value: rule.OfInt(5), Type: "long"}, {Name: "u", Value: rule.OfInt(6), Type: "uint"},
			{Name: "f", Value: rule.OfFloat(float64(float32(1.1))), Type: "float"}, {Name: "d", Value: price},
			{Name: "i", Value: rule.OfFloat(math.Inf(1))}, {Name: "b", Value: rule.OfBytes([]byte{0, 1, 2})},
		}},
	}})
	_, text := h.do(t, "GET", "/t/Subscriptions/s/Rules/amqp", "")
	for _, want := range []string{`long">5<`, `int">6<`, `float">1.1<`, `decimal">19.90<`, `double">INF<`, `base64Binary">AAEC<`} {
		if !strings.Contains(strings.ReplaceAll(text, ` xmlns:d6p1="`+schemaSpace+`"`, ""), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// A value without a type is written as a type that Go and JavaScript read.
func TestValuesWithoutATypeAreWrittenForTheStrictest(t *testing.T) {
	h := ruleHouse(t)
	d := h.entities["t/subscriptions/s"]
	d.Rules = append(d.Rules, fsm.Rule{Name: "amqp", Source: rule.Source{
		Kind: rule.CorrelationFilter, Correlation: &rule.Correlation{Properties: []rule.Property{
			{Name: "i", Value: rule.OfInt(-5)}, {Name: "l", Value: rule.OfInt(1 << 40)},
			{Name: "u", Value: rule.OfUint(1 << 63)}, {Name: "b", Value: rule.OfBool(true)},
			{Name: "f", Value: rule.OfFloat(0.5)}, {Name: "s", Value: rule.OfString("x")},
		}},
	}})
	_, text := h.do(t, "GET", "/t/Subscriptions/s/Rules/amqp", "")
	for _, want := range []string{"int\" xmlns:d6p1=\"" + schemaSpace + "\">-5<", ":long\"", ":unsignedLong\"",
		":boolean\"", ":double\"", ":string\""} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
