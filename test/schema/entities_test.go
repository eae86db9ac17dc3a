package schema

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/rest"
)

// taken returns what the program says of a file of entities: of its shape, and of each description.
func taken(t *testing.T, text string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "entities")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, _, err := entities.Read(file)
	if err != nil {
		return err
	}
	return entities.Check(all, func(path, element, inner string) error {
		if err := rest.Validate(rest.Defaults(), path, strings.NewReader(dial.Document(element, inner))); err != nil {
			return exit.With(exit.Usage, err)
		}
		return nil
	})
}

// beyond are the mistakes that no schema tells: what depends on the settings of a node, on other values, or on a language of
// its own.
var beyond = regexp.MustCompile(`must be between|exceeds the allowed maximum|multiple of 1024|cannot be combined|` +
	`is given twice|is named on line|RetryMin exceeds RetryMax|syntax error|must be a number from`)

// tooLong are delays of redelivery above their bound. The program says the same of them as of what is no duration at all.
var tooLong = regexp.MustCompile(`(?i:RetryM(in|ax)): (P2Y|P1M|P10675199D)`)

// agree reports a file that the two judge differently, unless the mistake is beyond a schema.
func agree(t *testing.T, what, text string, bySchema error) (ok bool) {
	t.Helper()
	byProgram := taken(t, text)
	if (bySchema == nil) == (byProgram == nil) {
		return bySchema == nil
	}
	if bySchema == nil && (beyond.MatchString(byProgram.Error()) || tooLong.MatchString(text)) {
		return false
	}
	t.Errorf("%s:\n%s\nthe schema says %v\nthe program says %v", what, text, bySchema, byProgram)
	return false
}

// The file of the official emulator, those of the examples, and those of the pages are good by the schema.
func TestFilesOfEntitiesThatAreThere(t *testing.T) {
	_, schema := compiled(t, "entities")
	var files []string
	for _, pattern := range []string{"../../cmd/busbar/testdata/Config.json", "../../docs/examples/*/Config.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !agree(t, file, string(text), judged(t, schema, string(text))) {
			t.Errorf("%s is refused", file)
		}
	}
	page, err := os.ReadFile("../../docs/management.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(Queues:.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Error("the page about files of entities has none")
	}
	for _, block := range blocks {
		if !agree(t, "docs/management.md", block[1], judged(t, schema, block[1])) {
			t.Errorf("refused: %s", block[1])
		}
	}
}

// propertiesOf returns the names of the properties that a schema of entities shows for a kind.
func propertiesOf(t *testing.T, printed map[string]any, kind string) []string {
	t.Helper()
	at := printed["$defs"].(map[string]any)[kind].(map[string]any)["patternProperties"].(map[string]any)
	for pattern, schema := range at {
		if regexp.MustCompile(pattern).MatchString("Properties") {
			var names []string
			for name := range schema.(map[string]any)["properties"].(map[string]any) {
				names = append(names, name)
			}
			return names
		}
	}
	t.Fatalf("%s has no properties", kind)
	return nil
}

// around puts properties into a file.
func around(kind, properties string) string {
	one := "Name: e, Properties: {" + properties + "}"
	switch kind {
	case entities.Queue:
		return "Queues: [{" + one + "}]"
	case entities.Topic:
		return "Topics: [{" + one + "}]"
	}
	return "Topics: [{Name: t, Subscriptions: [{" + one + "}]}]"
}

// Each property of each kind takes what the program takes, in any case of its letters, and refuses what it refuses. The
// program knows no property that the schema does not have.
func TestEachPropertyOfAnEntity(t *testing.T) {
	printed, schema := compiled(t, "entities")
	values := []string{`true`, `false`, `"True"`, `"FALSE"`, `"yes"`, `0`, `1`, `2`, `-1`, `1.5`, `10`, `"10"`, `1024`, `100000000000`, `"ten"`, `""`, `null`,
		`[]`, `{}`, `PT1M`, `PT0S`, `P1DT2H3M4.5S`, `P2Y`, `P1M`, `PT`, `P`, `P1D2H`, `"1m"`, `pt1m`, `-PT1M`, `P10675199DT2H48M5.4775807S`, `Active`,
		`receivedisabled`, `Sleeping`, `other-queue`, `"sb://host/other"`, `"` + strings.Repeat("x", 1024) + `"`, `"` + strings.Repeat("x", 1025) + `"`}
	for _, kind := range []string{entities.Queue, entities.Topic, entities.Subscription} {
		names := propertiesOf(t, printed, kind)
		if want := map[string]int{entities.Queue: 29, entities.Topic: 25, entities.Subscription: 23}[kind]; len(names) != want {
			t.Errorf("the schema has %d properties of a %s, want %d", len(names), kind, want)
		}
		for _, name := range names {
			spellings := []string{name, strings.ToLower(name), strings.ToUpper(name)}
			if testing.Short() {
				spellings = spellings[2:]
			}
			good := 0
			for _, spelt := range spellings {
				for _, value := range values {
					text := around(kind, spelt+": "+value)
					if agree(t, kind+" "+name, text, judged(t, schema, text)) && value != "null" && value != `""` {
						good++
					}
				}
			}
			if good < len(spellings) {
				t.Errorf("%d values of %s are good for a %s", good, name, kind)
			}
		}
		for _, name := range []string{"Colour", "IsAnonymousAccessible", "Queues", "SizeInBytes", "CreatedAt"} {
			text := around(kind, name+": true")
			if agree(t, "an unknown property", text, judged(t, schema, text)) {
				t.Errorf("%s is taken", name)
			}
		}
	}
	for of, others := range map[string][]string{entities.Queue: {entities.Topic, entities.Subscription}, entities.Topic: {entities.Queue, entities.Subscription},
		entities.Subscription: {entities.Queue, entities.Topic}} {
		for _, other := range others { // what one kind has, another may not have
			for _, name := range propertiesOf(t, printed, other) {
				for _, value := range []string{"true", "2", "PT1M", "Active"} {
					text := around(of, name+": "+value)
					agree(t, "a property of another kind", text, judged(t, schema, text))
				}
			}
		}
	}
}

func rules(list string) string {
	return "Topics: [{Name: t, Subscriptions: [{Name: s, Rules: [" + list + "]}]}]"
}

// Files of many shapes are judged alike.
func TestShapesOfFilesOfEntities(t *testing.T) {
	_, schema := compiled(t, "entities")
	good, bad := 0, 0
	shapes := []string{
		`{"$schema": "entities.schema.json", "Queues": []}`, `{"$schema": "x", "UserConfig": {"Namespaces": [{"Name": "n", "Queues": []}]}}`,
		`{"UserConfig": {"Namespaces": [{}], "Logging": {"Type": "File"}}}`, `{"userconfig": {"NAMESPACES": null}}`, `{"UserConfig": null}`,
		`{"UserConfig": {}, "Queues": []}`, `{"UserConfig": {"Namespaces": [{}, {}]}}`, `{"UserConfig": {"Limits": {}}}`, `{"UserConfig": {"Namespaces": {}}}`,
		`{"UserConfig": {"Namespaces": [{"$schema": "x"}]}}`, `{}`, `{"Name": 5, "queues": null, "TOPICS": null}`, `{"Streams": []}`, `5`, `[]`,
		"Queues: 5", "Queues: [5]", "Queues: [null]", "Queues: [{}]", "Queues: [{Name: null}]", `Queues: [{Name: ""}]`, "Queues: [{Name: a}]", "Queues: [{name: a}]",
		"Queues: [{Name: 5}]", "Queues: [{Name: [a]}]", "Queues: [{Name: a/b/c}]", "Queues: [{Name: a//b}]", "Queues: [{Name: /a}]", "Queues: [{Name: a/}]",
		"Queues: [{Name: a/../b}]", "Queues: [{Name: ..}]", "Queues: [{Name: ...}]", "Queues: [{Name: a b}]", "Queues: [{Name: ä}]", "Queues: [{Name: ~a.B-c_9}]",
		"Queues: [{Name: " + strings.Repeat("a", 260) + "}]", "Queues: [{Name: " + strings.Repeat("a", 261) + "}]",
		"Queues: [{Name: a, Properties: null}]", "Queues: [{Name: a, Properties: 5}]", "Queues: [{Name: a, Properties: []}]", "Queues: [{Name: a, Rules: []}]",
		"Queues: [{Name: a, Subscriptions: []}]", "Topics: [{Name: a, Subscriptions: null}]", "Topics: [{Name: a, Subscriptions: [{}]}]",
		"Topics: [{Name: a, Rules: []}]", "Topics: [{Name: a, Subscriptions: [{Name: b/c}]}]", "Topics: [{Name: a, Subscriptions: [{Name: b, Subscriptions: []}]}]",
		"Topics: [{Name: a, Subscriptions: [{Name: " + strings.Repeat("b", 50) + "}]}]", "Topics: [{Name: a, Subscriptions: [{Name: " + strings.Repeat("b", 51) + "}]}]",
		"Topics: [{Name: a, Subscriptions: [{Name: b, Rules: null}]}]", "Queues: [{Name: a, Properties: {a/b~c: 1}}]",
		rules("{}"), rules("null"), rules("{Name: r}"), rules("{Properties: {FilterType: 'True'}}"), rules("{Name: r, Properties: null}"),
		rules("{Name: r, Properties: {FilterType: True}}"), rules("{Name: r, Properties: {FilterType: 'True'}}"), rules("{name: r, properties: {filtertype: FALSE}}"),
		rules("{Name: $Default, Properties: {FilterType: 'False'}}"), rules("{Name: 'a b', Properties: {FilterType: 'False'}}"),
		rules("{Name: a/b, Properties: {FilterType: 'False'}}"), rules("{Name: 'N+T(1)', Properties: {FilterType: 'False'}}"),
		rules("{Name: r, Properties: {FilterType: Wise}}"), rules("{Name: r, Properties: {FilterType: 1}}"), rules("{Name: r, Properties: {FilterType: null}}"),
		rules("{Name: r, Filter: x}"), rules("{Name: r, Properties: {FilterType: 'True', X: 1}}"), rules("{Name: r, Properties: {SqlFilter: {SqlExpression: a = 1}}}"),
		rules("{Name: r, Properties: {FilterType: Sql}}"), rules("{Name: r, Properties: {FilterType: Sql, SqlFilter: {}}}"), rules("{Name: r, Properties: {FilterType: Sql, SqlFilter: null}}"),
		rules("{Name: r, Properties: {FilterType: Sql, SqlFilter: {SqlExpression: ''}}}"), rules("{Name: r, Properties: {FilterType: Sql, SqlFilter: {SqlExpression: a = 1}}}"),
		rules("{Name: r, Properties: {filterType: sql, sqlFilter: {sqlExpression: a = 1}}}"), rules("{Name: r, Properties: {filterType: sql, sqlFilter: {}}}"),
		rules("{Name: r, Properties: {FilterType: Sql, SqlFilter: {SqlExpression: a = = 1}}}"), rules("{Name: r, Properties: {FilterType: Sql, SqlFilter: {Sql: a = 1}}}"),
		rules("{Name: r, Properties: {FilterType: 'True', Action: {SqlExpression: SET a = 1}}}"), rules("{Name: r, Properties: {FilterType: 'True', Action: {Do: x}}}"),
		rules("{Name: r, Properties: {FilterType: 'True', Action: null}}"), rules("{Name: r, Properties: {FilterType: 'True', SqlFilter: {}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation}}"), rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Label: x}}}"), rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {label: 5}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Colour: x}}}"), rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Label: [x]}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: 1, b: x, c: true, d: 1.5}}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: {Type: long, Value: 5}}}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: {type: GUID, value: 4b0b9a4b-56ba-4bc2-9b5b-6b4d3c8c6a1e}}}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: {Type: long}}}}}"), rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: {Value: 5}}}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: {Type: tall, Value: 5}}}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: {Type: long, Value: 5, X: 1}}}}}"),
		rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: {a: [1]}}}}"), rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Properties: [1]}}}"),
	}
	for _, text := range shapes {
		if agree(t, "a shape", text, judged(t, schema, text)) {
			good++
		} else {
			bad++
		}
	}
	if good < 30 || bad < 30 {
		t.Errorf("%d shapes are good and %d are bad", good, bad)
	}
}
