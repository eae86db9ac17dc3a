package schema

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// otherwise are the complaints of the program that no schema can have: of files, of certificates, of what other settings say,
// and of what a text means.
var otherwise = regexp.MustCompile(`no such file|is a directory|not a directory|belong together|needs |is not set|nobody could connect|exclude each other|` +
	`no access key|gossip-keys? is not base64|longest lock|clock-skew is|namespace has no name|policy name|policy .* has |ephemeral is for|keys come from|` +
	`issuer|is no URL|beyond the settings|only with|entities .*: the file is empty|permission denied`)

// checks asks the program about configuration files, a few at a time.
func checks(t *testing.T, texts []string) (answers []string, good []bool) {
	t.Helper()
	dir := t.TempDir()
	answers, good = make([]string, len(texts)), make([]bool, len(texts))
	var wait sync.WaitGroup
	places := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	for i, text := range texts {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			file := filepath.Join(dir, fmt.Sprintf("busbar-%d.yaml", i))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Error(err)
				return
			}
			answers[i], good[i] = run(context.WithoutCancel(t.Context()), t, "config", "check", "--config", file)
		})
	}
	wait.Wait()
	return answers, good
}

// field is a setting, or a part of one.
type field struct {
	path   []string // of keys; [] stands for an item of the list before it
	schema map[string]any
}

// fieldsOf lists everything that a schema of settings has.
func fieldsOf(prefix []string, schema map[string]any) (all []field) {
	properties, _ := schema["properties"].(map[string]any)
	for name, one := range properties {
		path := append(slices.Clone(prefix), name)
		one := one.(map[string]any)
		all = append(all, field{path: path, schema: one})
		all = append(all, fieldsOf(path, one)...)
		if items, ok := one["items"].(map[string]any); ok {
			all = append(all, fieldsOf(append(path, "[]"), items)...)
		}
	}
	return all
}

// with writes a configuration in which one setting has a value. What belongs to the setting is good.
func with(t *testing.T, path []string, value any) string {
	t.Helper()
	document := map[string]any{"data-dir": "/nowhere/busbar", "root-key": "k"}
	neighbours := map[string]map[string]any{
		"policies": {"name": "p", "primary-key": "k", "rights": "Send"}, "issuers": {"name": "https://issuer.example", "audiences": "a"},
		"grants": {"claim": "c", "value": "v", "rights": "Send"}, "sign-in": {"client-id": "c"},
	}
	at := document
	for i, key := range path[:len(path)-1] {
		if key == "[]" {
			continue
		}
		next := map[string]any{}
		for k, v := range neighbours[key] {
			next[k] = v
		}
		at[key] = next
		if path[i+1] == "[]" {
			at[key] = []any{next}
		}
		at = next
	}
	at[path[len(path)-1]] = value
	text, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// laxer are values that the program takes and the schema refuses, so that an editor marks them: numbers with a fraction, which
// the program cuts off, and lists of nothing.
func laxer(value any, schema map[string]any) bool {
	if items, ok := value.([]any); ok && slices.Equal(items, []any{nil}) {
		return true
	}
	_, fraction := value.(float64)
	types, _ := schema["type"].([]any)
	return fraction && slices.Contains(types, any("integer"))
}

// Each setting takes what `config check` takes. What the schema refuses, config check refuses as well; what config check refuses
// besides is no matter of a schema.
func TestEachSetting(t *testing.T) {
	printed, schema := compiled(t, "settings")
	values := []any{nil, true, "text", "", 0, 1, -1, 70, 1025, 1 << 50, 1.5, []any{}, []any{"text"}, []any{"127.0.0.1:0", ":5672"}, []any{1}, []any{nil}, []any{[]any{}},
		map[string]any{}, map[string]any{"nosuch": 1}, "1h", "-5m", "90", "127.0.0.1:0", "::1:5672", "[::1]:5672", "send, LISTEN", []any{"Listen", "Send"}, "debug", "boltdb",
		"json", "standard", "a b", strings.Repeat("z", 129)}
	type trial struct {
		field field
		value any
		says  error
	}
	var trials []trial
	var texts []string
	for _, f := range fieldsOf(nil, printed) {
		if f.schema["description"] == "" {
			t.Errorf("%v: the schema says nothing of it", f.path)
		}
		for _, v := range values {
			text := with(t, f.path, v)
			trials, texts = append(trials, trial{f, v, judged(t, schema, text)}), append(texts, text)
		}
	}
	answers, good := checks(t, texts)
	taken := map[string]int{}
	for i, tr := range trials {
		switch name := strings.Join(tr.field.path, "."); {
		case good[i]:
			taken[name]++
			if tr.says != nil && !laxer(tr.value, tr.field.schema) {
				t.Errorf("%s: the program takes %#v, and the schema says %v", name, tr.value, tr.says)
			}
		case tr.says == nil && !otherwise.MatchString(answers[i]):
			t.Errorf("%s: the schema takes %#v, and the program says %s", name, tr.value, answers[i])
		case strings.Contains(answers[i], "no schema is known"):
			t.Fatal(answers[i])
		}
	}
	if len(texts) < 1500 {
		t.Errorf("only %d files were tried", len(texts))
	}
	t.Logf("%d files, %d settings of which some value was good", len(texts), len(taken))
}

// An unknown setting, and bounds on both sides, are where the two must agree to the number.
func TestBoundsOfSettings(t *testing.T) {
	printed, schema := compiled(t, "settings")
	var texts []string
	var wants []bool
	add := func(text string, good bool) { texts, wants = append(texts, text), append(wants, good) }
	for _, f := range fieldsOf(nil, printed) {
		least, hasLeast := number(f.schema["minimum"])
		most, hasMost := number(f.schema["maximum"])
		name := f.path[len(f.path)-1]
		if hasLeast {
			add(with(t, f.path, least-1), false)
			if !strings.Contains(name, "burst") { // needs a rate
				add(with(t, f.path, least), true)
			}
		}
		if hasMost {
			add(with(t, f.path, most+1), false)
		}
		if hasMost && !strings.Contains(name, "burst") && name != "connections" && name != "operations" { // bounded by open files, too
			add(with(t, f.path, most), true)
		}
	}
	add("$schema: x\ndata-dir: /d\nroot-key: k\n", true)
	add("data-dir: /d\nroot-key: k\nnosuch: 1\n", false)
	add("data-dir: /d\nroot-key: k\nDev: true\n", false)
	add("data-dir: /d\nroot-key: k\nmove-bytes-per-second: 0\n", true)
	add("data-dir: /d\nroot-key: k\nmove-bytes-per-second: 1048575\n", false)
	add("data-dir: /d\nroot-key: k\nmove-bytes-per-second: 1048576\n", true)
	add("data-dir: /d\npolicies: [{name: p, rights: Send}]\n", false)
	add("data-dir: /d\npolicies: [{name: p, primary-key: k}]\n", false)
	add("data-dir: /d\npolicies: [{name: p, primary-key: k, rights: [send]}]\n", true)
	answers, good := checks(t, texts)
	for i, text := range texts {
		says := judged(t, schema, text)
		if good[i] != wants[i] || (says == nil) != wants[i] {
			t.Errorf("%s\nwant good: %v; the program says %s; the schema says %v", text, wants[i], answers[i], says)
		}
	}
}

func number(v any) (int, bool) {
	n, ok := v.(interface{ Int64() (int64, error) })
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return int(i), err == nil
}

// The configuration files of the pages and of the manifests are good by the schema.
func TestConfigurationFilesThatAreThere(t *testing.T) {
	_, schema := compiled(t, "settings")
	seen := 0
	for _, page := range []string{"operating", "management", "security", "upgrading", "sizing"} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if !settingsBlock(block[1]) {
				continue
			}
			seen++
			if err := judged(t, schema, block[1]); err != nil {
				t.Errorf("docs/%s.md: %v in\n%s", page, err, block[1])
			}
		}
	}
	manifest, err := os.ReadFile("../../scripts/kubernetes/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Data map[string]string `yaml:"data"`
	}
	if err := yaml.Unmarshal(manifest, &m); err != nil || m.Data["busbar.yaml"] == "" {
		t.Fatalf("the manifest has no configuration: %v", err)
	}
	if err := judged(t, schema, m.Data["busbar.yaml"]); err != nil {
		t.Error(err)
	}
	if seen < 3 {
		t.Errorf("the pages have %d configuration files", seen)
	}
}

// settingsBlock reports whether a block of YAML is of a configuration file.
func settingsBlock(text string) bool {
	var keys map[string]any
	if yaml.Unmarshal([]byte(text), &keys) != nil {
		return false
	}
	for _, name := range []string{"limits", "policies", "issuers", "data-dir", "join", "gossip-keys"} {
		if _, ok := keys[name]; ok {
			return true
		}
	}
	return false
}
