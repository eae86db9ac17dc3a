package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// notes are what the page says of a setting behind its usage, in Markdown.
var notes = map[string]string{
	"data-dir": "One process at a time.",
	"node-id":  "The identity of a node is a UUID in its data directory.",
	"zone":     "So do the voters of the catalog ([zones](operating.md#zones)).",
	"dev": "When the node is ready, it prints where it listens and the connection string of a key that manages, with the key if it is the well-known one. " +
		"It warns if no key manages, and of listeners that other machines reach. " +
		"Its certificate is for localhost, the host's name, and the names of `node-id`, `advertise`, `allowed-hosts` and the listeners.",
	"ephemeral": "Without `data-dir`. The node takes 8 MB of disk and 30 MB of memory while it is empty. " +
		"What a killed node left goes with the next start of one.",
	"stop-with-stdin":       "The program that starts a node holds a pipe open, which ends with that program even if it is killed.",
	"ports-file":            "The node writes it as soon as it serves: `{\"amqp\":…,\"tls\":…,\"ops\":…}`.",
	"amqp-listen":           "Where `tls-listen` is set the default is `127.0.0.1:5672`.",
	"tls-listen":            "Such as 5671 and 443.",
	"ops-listen":            "The management API is there, too.",
	"ops-tls":               "With `dev` the node makes a certificate.",
	"console":               "See [console.md](console.md).",
	"allowed-hosts":         "Its own are `node-id`, `advertise`, addresses and private names.",
	"bootstrap-expect":      "It counts when the cluster is founded.",
	"partitions":            "See [more partitions](operating.md#more-partitions).",
	"replication-factor":    "It counts when the cluster is founded.",
	"move-bytes-per-second": "From 1048576 on. Moves under way go on at a new rate.",
	"finalize-upgrades":     "See [upgrading.md](upgrading.md).",
	"tls-cert":              "TLS is turned on and off by a restart; so it is with `tls-key` and `tls-ca`.",
	"tls-ca":                "It may hold several.",
	"require-node-uri": "That is a subject alternative name. " +
		"A node whose own certificate lacks it does not start, and says the URI with its id.",
	"quiet-runtime": "It saves a fifth of the CPU time at low load.",
	"entities":      "See [management.md](management.md#entities-in-a-file).",
	"tier": "`premium`: messages of 1,024 kB unless asked for otherwise. `standard`: 256 kB, and entities up to 5 GB. " +
		"It counts for new entities, and is the same on all nodes.",
	"audit-log":   "See [operating.md](operating.md#who-changed-what).",
	"root-key":    "Without `dev` a node needs it or `policies`.",
	"gossip-keys": "Encryption is turned on and off by a restart.",
	"policies":    "See [management.md](management.md#keys).",
	"issuers": "See [management.md](management.md#tokens-of-an-identity-provider), and for `sign-in` " +
		"[console.md](console.md#sign-in-at-an-identity-provider).",
	"clock-skew": "It counts for tokens that come later.",
}

// The tables of docs/configuration.md have every setting and limit, as the program tells them.
func TestTheReferenceOfTheConfigurationIsTrue(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "configuration.md")
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(got)
	for name, table := range map[string]string{"settings": settingsTable(t), "limits": limitsTable()} {
		begin, end := "<!-- "+name+": scripts/golden.sh -->\n", "<!-- /"+name+" -->\n"
		before, rest, ok := strings.Cut(want, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("docs/configuration.md has no place for the %s", name)
		}
		want = before + begin + table + end + after
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(got) != want {
		t.Error("docs/configuration.md is not what the program tells of its settings; scripts/golden.sh writes it anew")
	}
}

// settingsTable has a row for each setting that is not a limit.
func settingsTable(t *testing.T) string {
	t.Helper()
	usual, dev := defaults(false), defaults(true)
	ofUsual, ofDev := settingValues(&usual), settingValues(&dev)
	seen := map[string]bool{}
	var b strings.Builder
	b.WriteString("| setting | set by | default | a change takes | meaning |\n| --- | --- | --- | --- | --- |\n")
	row := func(name, by, usage string) {
		if usage == "" || seen[name] {
			t.Errorf("%s says nothing of itself, or is there twice", name)
		}
		seen[name] = true
		value, ok := ofUsual[name]
		if !ok {
			t.Errorf("%s is no setting of the file", name)
			return
		}
		if notes[name] != "" {
			usage += ". " + notes[name]
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, by, defaultsCell(value, ofDev[name]), takes(name), cell(usage))
	}
	for _, s := range settings() {
		row(s.name, "flag", s.usage)
	}
	for _, s := range environmentOnly() {
		row(s.name, "variable", inFileOnly[s.name])
	}
	for _, name := range []string{"gossip-keys", "policies", "issuers", "clock-skew", "namespace", "max-lock-duration"} {
		row(name, "file", inFileOnly[name])
	}
	for name := range notes {
		if !seen[name] {
			t.Errorf("the note of %s belongs to no setting", name)
		}
	}
	for name := range ofUsual {
		if !seen[name] && !strings.HasPrefix(name, "limits.") {
			t.Errorf("%s is in none of the lists of settings", name)
		}
	}
	return b.String()
}

// limitsTable has a row for each limit.
func limitsTable() string {
	var b strings.Builder
	b.WriteString("| limit | default | at most | a change takes | meaning |\n| --- | --- | --- | --- | --- |\n")
	l := defaultLimits()
	row := func(n span, usual string) {
		name := "limits." + n.name
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s |\n", n.name, usual, n.most, takes(name), cell(inFileOnly[name]))
	}
	for _, n := range l.spans() {
		row(n, fmt.Sprintf("`%d`", n.is))
	}
	for _, r := range l.rates() {
		row(r.span, "none")
	}
	return b.String()
}

// takes is what puts a change of a setting into effect on a node for which everything is on.
func takes(name string) string {
	on := Config{TLSCert: "c", TLSKey: "k", TLSCA: "a", GossipKey: "g"}
	if changesLive(name, &on, &on) {
		return "reload"
	}
	return "restart"
}

// defaultsCell shows a default, and that of --dev if it is another one.
func defaultsCell(usual, dev reflect.Value) string {
	cell := shownValue(usual)
	if other := shownValue(dev); other != cell {
		return strings.TrimPrefix(cell+"; with `dev` "+other, "; ")
	}
	return cell
}

func shownValue(v reflect.Value) string {
	switch is := v.Interface().(type) {
	case bool:
		return map[bool]string{true: "on", false: "off"}[is]
	case time.Duration:
		return "`" + strings.TrimSuffix(is.String(), "0s") + "`"
	case int:
		return fmt.Sprintf("`%d`", is)
	case list:
		if len(is) > 0 {
			return "`" + strings.Join(is, ",") + "`"
		}
	case string:
		if is != "" {
			return "`" + is + "`"
		}
	}
	return ""
}
