package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/transport/rest"
)

func environment(m map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "busbar.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := writeConfig(t, "data-dir: /from/file\nnode-id: file\nlog-level: warn\nroot-key: k\npartitions: 3\n")
	env := environment(map[string]string{"BUSBAR_NODE_ID": "env", "BUSBAR_LOG_LEVEL": "error"})
	c, err := load(file, map[string][]string{"log-level": {"debug"}}, env)
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "/from/file" || c.NodeName != "env" || c.LogLevel != "debug" || c.Partitions != 3 ||
		c.LogStore != "wal" {
		t.Errorf("got %+v", c)
	}
}

func TestListsComeFromRepeatedFlagsCommasAndSequences(t *testing.T) {
	base := "data-dir: /d\nroot-key: k\ntls-cert: c\ntls-key: k\n"
	want := list{":5671", ":443"}
	for name, load := range map[string]func() (Config, error){
		"repeated flag": func() (Config, error) {
			return load(writeConfig(t, base), map[string][]string{"tls-listen": {":5671", ":443"}}, environment(nil))
		},
		"environment": func() (Config, error) {
			return load(writeConfig(t, base), nil, environment(map[string]string{"BUSBAR_TLS_LISTEN": ":5671, :443"}))
		},
		"sequence": func() (Config, error) {
			return load(writeConfig(t, base+"tls-listen: [':5671', ':443']\n"), nil, environment(nil))
		},
		"text": func() (Config, error) {
			return load(writeConfig(t, base+"tls-listen: ':5671,:443'\n"), nil, environment(nil))
		},
	} {
		c, err := load()
		if err != nil || !reflect.DeepEqual(c.TLSListen, want) {
			t.Errorf("%s: %v %v", name, c.TLSListen, err)
		}
	}
}

func TestUnknownKeysAreErrorsWithTheirLine(t *testing.T) {
	_, err := load(writeConfig(t, "data-dir: /d\nroot-key: k\nparttions: 4\n"), nil, environment(nil))
	if err == nil || !strings.Contains(err.Error(), "line 3: there is no setting parttions: did you mean partitions?") {
		t.Errorf("error %v, want one that names line 3, the key and the one that was meant", err)
	}
}

// A fault of the file is told in words of the file, all faults at once.
func TestFaultsOfTheFileAreForPeople(t *testing.T) {
	_, err := load(writeConfig(t, "root-keey: k\npartitions: many\nops-tls: perhaps\nclock-skew: soon\nlimits:\n  conections: 5\nsomething: else\n"),
		nil, environment(nil))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"line 1: there is no setting root-keey: did you mean root-key?", `line 2: "many" is not a number`,
		`line 3: "perhaps" is not true or false`, `line 4: "soon" is not a duration`,
		"line 6: there is no setting conections: did you mean connections?", "line 7: there is no setting something"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %q in: %v", want, err)
		}
	}
	for _, not := range []string{"main.", "unmarshal", "type ", "something:"} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("%q is for programmers, in: %v", not, err)
		}
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	given := map[string][]string{"partitions": {"0"}, "log-level": {"loud"}, "amqp-listen": {"5672"},
		"tls-cert": {"x"}, "bootstrap-expect": {"many"}, "zone": {"two words"},
		"move-bytes-per-second": {"1000"}}
	_, err := load("", given, environment(nil))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--data-dir", "access key", "partitions is 0", "log-level", "HOST:PORT",
		"tls-key", "bootstrap-expect", "zone is",
		"move-bytes-per-second is 1000"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %q in: %v", want, err)
		}
	}
}

func TestOnlyDevelopmentNodesHaveADefaultKey(t *testing.T) {
	given := map[string][]string{"data-dir": {"/d"}}
	if _, err := load("", given, environment(nil)); err == nil || !strings.Contains(err.Error(), "BUSBAR_ROOT_KEY") {
		t.Errorf("error %v, want one that says how to set a key", err)
	}
	given["dev"] = []string{"true"}
	c, err := load("", given, environment(nil))
	if err != nil || len(c.Policies) != 1 || c.Policies[0].Name != devKeyName || string(c.Policies[0].Primary) != devKey {
		t.Errorf("--dev: %v %v", c.Policies, err)
	}
	c, err = load("", given, environment(map[string]string{"BUSBAR_ROOT_KEY": "mine"}))
	if err != nil || len(c.Policies) != 1 || string(c.Policies[0].Primary) != "mine" {
		t.Errorf("--dev with a key: %v %v", c.Policies, err)
	}
}

func TestDevelopmentListensOnLoopbackOnly(t *testing.T) {
	c, err := load("", map[string][]string{"data-dir": {"/d"}, "dev": {"true"}}, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	all := append(append(list{c.OpsListen, c.PeerListen, c.GossipListen}, c.AMQPListen...), c.TLSListen...)
	for _, a := range all {
		if !strings.HasPrefix(a, "127.0.0.1:") {
			t.Errorf("%s is not loopback", a)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	c, err := load("", map[string][]string{"data-dir": {"/d"}}, environment(map[string]string{"BUSBAR_ROOT_KEY": "hush-hush"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Policies {
		if s := p.Primary.String(); strings.Contains(s, "hush") {
			t.Errorf("printed %s", s)
		}
	}
}

// B7, RUL-25: the tier comes from flag, environment or file, and one that does not exist is told.
func TestTheTierIsASetting(t *testing.T) {
	given := map[string][]string{"dev": {"true"}, "data-dir": {t.TempDir()}}
	c, err := load("", given, environment(nil))
	if err != nil || c.restConfig().Tier != rest.Premium || c.restConfig().MaxMessageBytes != 1<<20 {
		t.Errorf("by default: %q, %v", c.restConfig().Tier, err)
	}
	c, err = load("", given, environment(map[string]string{"BUSBAR_TIER": "standard"}))
	if err != nil || c.restConfig().Tier != rest.Standard || c.restConfig().MaxMessageBytes != 256<<10 {
		t.Errorf("from the environment: %q, %v", c.restConfig().Tier, err)
	}
	given["tier"] = []string{"basic"}
	if _, err = load("", given, environment(nil)); err == nil || !strings.Contains(err.Error(), `tier is "basic", want premium or standard`) {
		t.Errorf("an unknown one: %v", err)
	}
}

// F7: a node with TLS speaks plain text to its own machine alone, unless it is told otherwise.
func TestPlainTextIsAskedForWhereThereIsTLS(t *testing.T) {
	base := "data-dir: /d\nroot-key: k\n"
	tls := base + "tls-listen: [':5671']\ntls-cert: c\ntls-key: k\n"
	for name, c := range map[string]struct{ file, want string }{
		"without TLS": {base, ":5672"}, "with TLS": {tls, "127.0.0.1:5672"},
		"asked for": {tls + "amqp-listen: [':5672']\n", ":5672"}, "none": {tls + "amqp-listen: []\n", ""},
	} {
		got, err := load(writeConfig(t, c.file), nil, environment(nil))
		if err != nil || strings.Join(got.AMQPListen, ",") != c.want {
			t.Errorf("%s: %v, %v, want %s", name, got.AMQPListen, err, c.want)
		}
	}
}

// F7: nodes that trust each other by certificates have a key for gossip too, if strangers reach it.
func TestGossipOffLoopbackWantsAKey(t *testing.T) {
	base := "data-dir: /d\nroot-key: k\ntls-cert: c\ntls-key: k\ntls-ca: a\n"
	key := "gossip-key: " + strings.Repeat("A", 43) + "=\n"
	for name, c := range map[string]struct {
		file string
		ok   bool
	}{
		"without a key": {base, false}, "with a key": {base + key, true},
		"on loopback": {base + "gossip-listen: 127.0.0.1:5302\n", true}, "without certificates": {"data-dir: /d\nroot-key: k\n", true},
	} {
		_, err := load(writeConfig(t, c.file), nil, environment(nil))
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "gossip-key is not set") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
