package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const emulatorFile = "testdata/Config.json"

// connection is a connection string for a node of this process.
func (l *liveNode) connection() string {
	return "Endpoint=sb://" + l.host + ";SharedAccessKeyName=" + devKeyName + ";SharedAccessKey=" + devKey +
		";UseDevelopmentEmulator=true"
}

// awaitEntities returns when the node has made what its file asks for.
func (l *liveNode) awaitEntities(t *testing.T) {
	t.Helper()
	for !strings.Contains(l.log.String(), "entities are there") {
		select {
		case err := <-l.failed:
			t.Fatal(err)
		case <-t.Context().Done():
			t.Fatal("never made")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The official emulator's Config.json is read as it is; a second time nothing is created; what was
// changed meanwhile is told and left alone; what export writes makes the same.
func TestEntitiesOfTheEmulatorsFile(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	apply := func(want string, code int, args ...string) string {
		t.Helper()
		out, got := execute(t, client.NewEntitiesCommand(), "", append([]string{"apply", "--connection-string",
			l.connection()}, args...)...)
		if got != code || !strings.Contains(out, want) {
			t.Fatalf("apply %v: exit code %d, %s", args, got, out)
		}
		return out
	}
	apply("would create subscription topic.1/Subscriptions/subscription.1", 0, emulatorFile, "--dry-run")
	if out := apply("6 created, 0 differ", 0, emulatorFile); !strings.Contains(out, "/UserConfig/Logging") {
		t.Errorf("it is not told that logging means nothing here: %s", out)
	}
	apply("0 created, 0 differ", 0, emulatorFile)

	for path, want := range map[string][]string{
		"/queue.1": {"<MaxDeliveryCount>3<", "<DefaultMessageTimeToLive>PT1H<", "/topic.1</ForwardTo>"},
		"/topic.1/Subscriptions/subscription.1/Rules": {">app-prop-filter-1<", "<Label>subject1<", "<To>xyz<"},
		"/topic.1/Subscriptions/subscription.2/Rules": {`d6p1:int`, `d6p1:double`, `d6p1:boolean`, "<Key>prop3<"},
		"/topic.1/Subscriptions/subscription.3/Rules": {">$Default<"},
		"/topic.1/Subscriptions/subscription.4/Rules": {"SET sys.To", ">none<", `i:type="FalseFilter"`},
	} {
		_, text := l.request(t, "GET", path, "", "")
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %s in %s", path, part, text)
			}
		}
	}
	if _, text := l.request(t, "GET", "/topic.1/Subscriptions/subscription.4/Rules", "", ""); strings.Contains(text,
		"$Default") {
		t.Error("a subscription with rules of its own has the default rule")
	}

	exported, code := execute(t, client.NewEntitiesCommand(), "", "export", "--connection-string", l.connection())
	if code != 0 || !strings.Contains(exported, "FilterType: Correlation") {
		t.Fatalf("export: %d %s", code, exported)
	}
	again := openLive(t, nodeConfig(t, nil))
	file := filepath.Join(t.TempDir(), "e.yaml")
	if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	first := l
	l = again
	apply("6 created, 0 differ", 0, file)
	apply("0 created, 0 differ", 0, emulatorFile)
	l = first

	l.put(t, "/queue.1", "QueueDescription", "<MaxDeliveryCount>4</MaxDeliveryCount>", "If-Match", "*")
	l.request(t, "DELETE", "/topic.1/Subscriptions/subscription.4/Rules/none", "", "")
	l.put(t, "/topic.1/Subscriptions/subscription.2/Rules/more", "RuleDescription", "")
	out := apply("1 created, 5 differ", exit.Conflict, emulatorFile)
	for _, want := range []string{
		`line 16, /UserConfig/Namespaces/0/Queues/0/Properties/MaxDeliveryCount: MaxDeliveryCount of queue.1 is "4"`,
		"created rule topic.1/Subscriptions/subscription.4/Rules/none", "has a rule more that the file does not have",
		"ForwardTo of queue.1",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}

// A node makes what its file asks for, once its cluster is ready; the next start finds it there.
func TestEntitiesAtTheStart(t *testing.T) {
	cfg := nodeConfig(t, func(c *Config) { c.Entities = emulatorFile })
	for _, start := range []string{"first start", "second start"} {
		t.Run(start, func(t *testing.T) {
			l := openLive(t, cfg)
			l.awaitEntities(t)
			_, text := l.request(t, "GET", "/topic.1", "", "")
			if !strings.Contains(text, "<SubscriptionCount>4<") {
				t.Errorf("got %s", text)
			}
		})
	}
}

func TestBadEntitiesNameLineAndPointer(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":           {"", "the file is empty"},
		"no JSON":           {"{\n\"Queues\": [}", "line 2: invalid character"},
		"two documents":     {"{}{}", "something follows"},
		"no YAML":           {"a: [", "yaml"},
		"an unknown member": {"{\n\"Queues\": [],\n\"Streams\": []}", "line 3, /Streams: is unknown"},
		"an unknown property": {"Queues:\n- Name: a\n  Properties:\n    Colour: red\n",
			"line 4, /Queues/0/Properties/Colour: is no property of a queue"},
		"a topic's property of a queue": {"queues: [{name: a, properties: {FilteringMessagesBeforePublishing: true}}]",
			"is no property of a queue"},
		"no name":            {"{\"Queues\":\n[{}]}", "line 2, /Queues/0: the queue has no name"},
		"no list":            {"Queues: 5", "/Queues: want a list"},
		"no object":          {"Queues: [5]", "/Queues/0: want an object"},
		"a list as a value":  {"Queues: [{Name: a, Properties: {MaxDeliveryCount: [1]}}]", "want a text, a number"},
		"a name twice":       {"Queues:\n- Name: a\nTopics:\n- Name: A\n", "line 4, /Topics/0: A is named on line 2"},
		"a member twice":     {"{\"Queues\":[],\n\"queues\":[]}", "line 2, /queues: is given twice"},
		"two namespaces":     {`{"UserConfig":{"Namespaces":[{},{}]}}`, "/UserConfig/Namespaces/1: one namespace"},
		"another config":     {`{"UserConfig":{"Limits":{}}}`, "/UserConfig/Limits: is unknown"},
		"rules of a queue":   {"Queues: [{Name: a, Rules: []}]", "is unknown in a queue"},
		"a slash in a key":   {"Queues: [{Name: a, Properties: {a/b~c: 1}}]", "/Queues/0/Properties/a~1b~0c"},
		"a rule of no type":  {rules("{Name: r}"), "Rules/0: the rule r has no FilterType"},
		"an unknown filter":  {rules("{Name: r, Properties: {FilterType: Wise}}"), "is no type of filter"},
		"no expression":      {rules("{Name: r, Properties: {FilterType: Sql}}"), "has no SqlExpression"},
		"nothing to compare": {rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {}}}"), "nothing to compare"},
		"a rule twice":       {rules("{Name: r, Properties: {FilterType: True}}, {Name: R, Properties: {FilterType: True}}"), "R is named on line 1"},
		"a field of none":    {rules("{Name: r, Properties: {FilterType: Correlation, CorrelationFilter: {Colour: x}}}"), "is unknown in a correlation filter"},
		"a rule's member":    {rules("{Name: r, Filter: x}"), "is unknown in a rule"},
		"a rule's property":  {rules("{Name: r, Properties: {FilterType: True, X: 1}}"), "is unknown; want FilterType"},
		"an action of none":  {rules("{Name: r, Properties: {FilterType: True, Action: {Do: x}}}"), "want SqlExpression"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "e")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := entities.Read(file); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
			given := map[string][]string{"dev": {"true"}, "data-dir": {t.TempDir()}, "entities": {file}}
			if _, err := load("", given, environment(nil)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the configuration is taken: %v", err)
			}
		})
	}
}

func rules(list string) string {
	return "Topics: [{Name: t, Subscriptions: [{Name: s, Rules: [" + list + "]}]}]"
}

// Limits of the original as a service can be moved (RUL-8).
func TestLimitsAreMoved(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) {
		c.LiftLimits, c.MaxLockDuration, c.Namespace = true, time.Hour, "mine"
	}))
	l.put(t, "/q", "QueueDescription", "<LockDuration>PT1H</LockDuration><MaxSizeInMegabytes>7"+
		"</MaxSizeInMegabytes><DuplicateDetectionHistoryTimeWindow>PT5S</DuplicateDetectionHistoryTimeWindow>")
	if _, text := l.request(t, "GET", "/$namespaceinfo", "", ""); !strings.Contains(text, "<Name>mine</Name>") {
		t.Errorf("got %s", text)
	}
	given := map[string][]string{"dev": {"true"}, "data-dir": {t.TempDir()}}
	file := writeConfig(t, "max-lock-duration: 48h\n")
	if _, err := load(file, given, environment(nil)); err == nil || !strings.Contains(err.Error(), "longest lock") {
		t.Errorf("a lock of days is taken: %v", err)
	}
}

// What the broker refuses names the line too; forwarding in a circle is found before anything is made.
func TestEntitiesThatTheBrokerRefuses(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	for name, tc := range map[string]struct{ text, want string }{
		"a bad value": {"Queues:\n- Name: a\n  Properties: {LockDuration: PT6M}\n", "line 3, /Queues/0/Properties/LockDuration: check a: 400"},
		"a circle": {"Queues:\n- {Name: a, Properties: {ForwardTo: b}}\n- {Name: b, Properties: {ForwardTo: a}}\n",
			"line 2, /Queues/0: a, b are new and forward in a circle"},
	} {
		file := filepath.Join(t.TempDir(), "e.yaml")
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, code := execute(t, client.NewEntitiesCommand(), "", "apply", file, "--connection-string", l.connection())
		if code == 0 || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %d %s", name, code, out)
		}
	}
}

// The whole file is judged before anything is made, by the client of a broker as by a node and by config check. Every
// fault has its own line and pointer.
func TestAFileWithFaultsMakesNothing(t *testing.T) {
	const text = `Queues:
- Name: good
- Name: slow
  Properties:
    LockDuration: PT10M
    MaxDeliveryCount: 0
- Name: both
  Properties: {RequiresSession: true, ForwardTo: good}
Topics:
- Name: t
  Subscriptions:
  - Name: s
    Rules:
    - Name: broken
      Properties:
        FilterType: Sql
        SqlFilter: {SqlExpression: a = = 3}
- Name: "bad name"
`
	file := filepath.Join(t.TempDir(), "e.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	faults := []string{
		"line 5, /Queues/1/Properties/LockDuration: ", "line 6, /Queues/1/Properties/MaxDeliveryCount: ",
		"line 7, /Queues/2: ", "ForwardTo cannot be combined with RequiresSession",
		"line 14, /Topics/0/Subscriptions/0/Rules/0: ", "syntax error at character 5", "line 18, /Topics/1: ",
	}
	l := openLive(t, nodeConfig(t, nil))
	for _, more := range [][]string{nil, {"--dry-run"}, {"--update"}} {
		out, code := execute(t, client.NewEntitiesCommand(), "", append([]string{"apply", file, "--connection-string",
			l.connection()}, more...)...)
		if code != exit.Usage {
			t.Errorf("apply %v: exit code %d", more, code)
		}
		for _, want := range faults {
			if !strings.Contains(out, want) {
				t.Errorf("apply %v does not tell %q: %s", more, want, out)
			}
		}
	}
	if out, _ := execute(t, client.NewEntitiesCommand(), "", "list", "--connection-string", l.connection()); strings.Count(out, "\n") != 1 {
		t.Errorf("something was made: %s", out)
	}
	given := map[string][]string{"dev": {"true"}, "data-dir": {t.TempDir()}, "entities": {file}}
	_, err := load("", given, environment(nil))
	for _, want := range faults {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the configuration does not tell %q: %v", want, err)
		}
	}
}

// With --update a broker becomes what the file says, with --prune nothing else is left; a dry run tells both.
func TestApplyUpdatesAndPrunes(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	file := filepath.Join(t.TempDir(), "e.yaml")
	apply := func(code int, text string, more ...string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, got := execute(t, client.NewEntitiesCommand(), "", append([]string{"apply", file, "--connection-string",
			l.connection()}, more...)...)
		if got != code {
			t.Fatalf("apply %v: exit code %d, want %d: %s", more, got, code, out)
		}
		return out
	}
	apply(0, `Queues:
- Name: orders
  Properties: {MaxDeliveryCount: 5, LockDuration: PT30S, UserMetadata: kept, EnablePartitioning: true, RetryMin: PT2S, RetryMax: PT1M}
- Name: old
Topics:
- Name: trade
  Subscriptions:
  - Name: eu
    Rules:
    - {Name: region, Properties: {FilterType: Sql, SqlFilter: {SqlExpression: region = 'eu'}}}
    - {Name: more, Properties: {FilterType: True}}
  - Name: left
`)
	l.put(t, "/orders", "QueueDescription", `<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>`+
		`<UserMetadata>kept</UserMetadata><MaxDeliveryCount>5</MaxDeliveryCount><AuthorizationRules>`+
		`<AuthorizationRule i:type="SharedAccessAuthorizationRule" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">`+
		`<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights>`+
		`<KeyName>app</KeyName><PrimaryKey>AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=</PrimaryKey>`+
		`<SecondaryKey>HxAeDx0OHA0bDBoLGQoYCRcIFgcVBhQFEwQSAxECEAE=</SecondaryKey></AuthorizationRule></AuthorizationRules>`, "If-Match", "*")
	const next = `Queues:
- Name: orders
  Properties: {MaxDeliveryCount: 7, NoDeadLetter: true}
Topics:
- Name: trade
  Subscriptions:
  - Name: eu
    Rules:
    - {Name: region, Properties: {FilterType: Sql, SqlFilter: {SqlExpression: region = 'us'}}}
`
	out := apply(exit.Conflict, next)
	for _, want := range []string{`MaxDeliveryCount of orders is "5", the file wants "7"`, "0 created, 4 differ", "has a rule more"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	apply(exit.Usage, next, "--update", "--prune")
	out = apply(0, next, "--update", "--prune", "--dry-run")
	for _, want := range []string{`would set MaxDeliveryCount of orders: "5" becomes "7"`, "would delete queue old",
		"would delete subscription trade/Subscriptions/left", "would delete rule trade/Subscriptions/eu/Rules/more",
		"would set the rule trade/Subscriptions/eu/Rules/region: (SqlFilter region = 'eu') becomes (SqlFilter region = 'us')",
		"0 would be created, 2 would be updated, 3 would be deleted, 0 differ"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if out := apply(0, next, "--update", "--prune", "--yes"); !strings.Contains(out, "0 created, 2 updated, 3 deleted, 0 differ") {
		t.Errorf("got %s", out)
	}
	if out := apply(0, next, "--update", "--prune", "--yes"); !strings.Contains(out, "0 created, 0 updated, 0 deleted, 0 differ") {
		t.Errorf("the second time: %s", out)
	}
	_, text := l.request(t, "GET", "/orders", "", "")
	for _, want := range []string{"<MaxDeliveryCount>7<", "<LockDuration>PT30S<", "<UserMetadata>kept<", "<MaxSizeInMegabytes>16384<",
		"<KeyName>app<", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "<EnablePartitioning>true<", "<NoDeadLetter>true<", "<RetryMin>PT2S<"} {
		if !strings.Contains(text, want) {
			t.Errorf("after the update orders has no %s: %s", want, text)
		}
	}
	list, _ := execute(t, client.NewEntitiesCommand(), "", "list", "--connection-string", l.connection())
	if got := strings.Fields(list); strings.Contains(list, "left") || strings.Contains(list, "old") || len(got) != 7+3*7 {
		t.Errorf("there is: %s", list)
	}
}

// A node that makes what its file asks for refuses nobody: its own questions are neither counted nor logged as refusals.
func TestAFileOfEntitiesCountsNoRefusals(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.Entities = emulatorFile }))
	l.awaitEntities(t)
	if strings.Contains(l.log.String(), "refused") {
		t.Errorf("the log tells of refusals: %s", l.log.String())
	}
}

// RUL-38: a file says the type of a value that YAML has no type for, and export writes it so.
func TestTypesOfRuleValuesInAFile(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	file := filepath.Join(t.TempDir(), "types.yaml")
	const properties = `Properties: {plain: 5, half: 0.5, yes: true, text: "7", long: {Type: long, Value: 5},
              price: {Type: decimal, Value: "19.90"}, day: {Type: duration, Value: P1D}, raw: {Type: base64Binary, Value: AAEC}}`
	text := func(properties string) string {
		return `Topics:
- Name: news
  Subscriptions:
  - Name: all
    Rules:
    - Name: typed
      Properties:
        FilterType: Correlation
        CorrelationFilter: {` + properties + "}\n"
	}
	apply := func(l *liveNode, body string) (string, int) {
		t.Helper()
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return execute(t, client.NewEntitiesCommand(), "", "apply", "--connection-string", l.connection(), file)
	}
	if out, code := apply(l, text(properties)); code != 0 {
		t.Fatalf("apply: %d %s", code, out)
	}
	kinds := func(l *liveNode) string {
		_, text := l.request(t, "GET", "/news/Subscriptions/all/Rules/typed", "", "")
		for _, want := range []string{":int", ":double", ":boolean", ":string", ":long", ":decimal", ":duration", ":base64Binary", ">19.90<"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		from, to := strings.Index(text, "<Filter"), strings.Index(text, "</Filter>")
		return text[max(from, 0):max(to, 0)]
	}
	exported, code := execute(t, client.NewEntitiesCommand(), "", "export", "--connection-string", l.connection())
	if code != 0 {
		t.Fatalf("export: %d %s", code, exported)
	}
	again := openLive(t, nodeConfig(t, nil))
	if out, code := apply(again, exported); code != 0 {
		t.Fatalf("apply what was exported: %d %s\n%s", code, out, exported)
	}
	if a, b := kinds(l), kinds(again); sortedParts(a) != sortedParts(b) {
		t.Errorf("%s\nbecame\n%s", a, b)
	}
	for bad, want := range map[string]string{
		"Properties: {x: {Type: money, Value: 1}}":           "is no type of a value",
		"Properties: {x: {Type: long}}":                      "wants Type and Value",
		"Properties: {x: {Type: long, Value: 1, Unit: EUR}}": "unknown in a value",
	} {
		if out, code := apply(l, text(bad)); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s", bad, code, out)
		}
	}
}

// sortedParts brings the properties of a filter into an order: a file keeps none.
func sortedParts(filter string) string {
	parts := strings.Split(strings.ReplaceAll(filter, "</Properties>", ""), "<KeyValueOfstringanyType>")
	slices.Sort(parts)
	return strings.Join(parts, "")
}
