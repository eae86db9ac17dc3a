package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// reloading is a node whose configuration file a test changes.
type reloading struct {
	*liveNode
	file string
}

func openReloading(t *testing.T, text string) *reloading {
	t.Helper()
	return openReloadingIn(t, t.TempDir(), text, "partitions", "1")
}

// openReloadingIn opens it over a data directory, with further flags: names and values in turn.
func openReloadingIn(t *testing.T, dir, text string, flags ...string) *reloading {
	t.Helper()
	file := writeConfig(t, text)
	given := map[string][]string{"dev": {"true"}, "data-dir": {dir}, "node-id": {"n1"},
		"amqp-listen": {"127.0.0.1:0"}, "tls-listen": {"127.0.0.1:0"}, "ops-listen": {"127.0.0.1:0"}}
	for i := 0; i < len(flags); i += 2 {
		given[flags[i]] = []string{flags[i+1]}
	}
	cfg, err := load(file, given, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	return &reloading{openLive(t, cfg), file}
}

// write replaces the file and has the node read it by a request; it returns the status and the answer.
func (r *reloading) write(t *testing.T, text string) (int, string) {
	t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	res, answer := r.requestTo(t, r.opsHost(), http.MethodPost, reloadPath, "",
		auth.NewToken("http://"+r.opsHost()+"/", "root", "rootkey", time.Now().Add(time.Hour)))
	return res.StatusCode, answer
}

// mustReload is write for a file that is good.
func (r *reloading) mustReload(t *testing.T, text string) (done reloaded) {
	t.Helper()
	status, answer := r.write(t, text)
	if err := json.Unmarshal([]byte(answer), &done); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	return done
}

// rootPolicy keeps the tests in.
const rootPolicy = "policies:\n- {name: root, primary-key: rootkey, rights: [Manage]}\n"

// A key that a reload takes away opens nothing, and ends the connections that it has opened; others go on.
func TestAReloadReplacesKeys(t *testing.T) {
	app := "- {name: app, primary-key: one, secondary-key: two, rights: [Send]}\n"
	r := openReloading(t, rootPolicy+app)
	token := auth.NewToken("http://"+r.host+"/", "root", "rootkey", time.Now().Add(time.Hour))
	if res, text := r.request(t, "PUT", "/orders", atomOf("QueueDescription", ""), token, "Content-Type", dial.AtomEntryType); res.StatusCode >= 300 {
		t.Fatal(text)
	}
	open := func(key string) *amqp.Sender {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w, err := dial.Connect(ctx, r.target("app", key), "orders", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		s, err := w.Session.NewSender(ctx, "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, second := open("one"), open("two")
	done := r.mustReload(t, rootPolicy+"- {name: app, primary-key: two, secondary-key: three, rights: [Send]}\n")
	if strings.Join(done.Changed, " ") != "policies" || len(done.Restart) != 0 {
		t.Errorf("done: %+v", done)
	}
	if got := tries(t, r.target("app", "one"), "orders"); got != "nothing" {
		t.Errorf("the old key can %q", got)
	}
	if got := tries(t, r.target("app", "three"), "orders"); got != "send" {
		t.Errorf("the new key can %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for first.Send(ctx, amqp.NewMessage([]byte("m")), nil) == nil { // until the front end has looked
		if ctx.Err() != nil {
			t.Fatal("a connection of the old key still sends")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := second.Send(ctx, amqp.NewMessage([]byte("m")), nil); err != nil {
		t.Errorf("a connection of the key that stays: %v", err)
	}
	log := r.log.String()
	for _, key := range []string{"rootkey", "three"} {
		if strings.Contains(log, key) {
			t.Errorf("the log tells a key")
		}
	}
}

// A file with a mistake changes nothing, whatever else is right in it, and the answer says why.
func TestAReloadWithAMistakeChangesNothing(t *testing.T) {
	r := openReloading(t, rootPolicy+"log-level: trace\n")
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":               {"a: [", "did not find expected"},
		"an unknown setting":    {rootPolicy + "log-level: info\nlog-levle: info\n", "log-levle"},
		"a right that is none":  {rootPolicy + "log-level: info\nissuers:\n- {name: 'https://a', grants: [{value: v, rights: [Fly]}]}\n", "Fly"},
		"an issuer named twice": {rootPolicy + "log-level: info\nissuers:\n- {name: 'https://a'}\n- {name: 'https://a'}\n", "there already"},
		"keys that are not there": {rootPolicy + "log-level: info\nissuers:\n- {name: 'https://a', keys: /nowhere}\n",
			"no such file"},
		"a limit out of bounds": {rootPolicy + "log-level: info\nlimits: {entities: 0}\n", "entities is 0"},
	} {
		status, answer := r.write(t, c.text)
		if status != http.StatusUnprocessableEntity || !strings.Contains(answer, c.want) {
			t.Errorf("%s: %d %s, want %q", name, status, answer, c.want)
		}
		if !r.node.log.IsTrace() || r.reloader.running.Load().LogLevel != "trace" {
			t.Errorf("%s: the log level has changed", name)
		}
	}
	done := r.mustReload(t, rootPolicy+"log-level: warn\nnamespace: other\n")
	if strings.Join(done.Changed, " ") != "log-level" || strings.Join(done.Restart, " ") != "namespace" || r.node.log.IsInfo() {
		t.Errorf("done: %+v", done)
	}
	_, metrics := r.requestTo(t, r.opsHost(), http.MethodGet, "/metrics", "", "")
	for _, want := range []string{`busbar_config_reloads_total{result="applied"} 1`, `busbar_config_reloads_total{result="refused"} 6`,
		"busbar_config_last_reload_successful 1", "busbar_config_last_reload_success_timestamp_seconds 1.",
		`busbar_certificate_expiry_timestamp_seconds{use="shown"} `} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// Issuers come and go, and so do their keys in files.
func TestAReloadReplacesIssuers(t *testing.T) {
	r := openReloading(t, rootPolicy)
	p := newProvider(t)
	name := p.URL + "/tenant"
	file := filepath.Join(t.TempDir(), "keys.json")
	keep := func() {
		if err := os.WriteFile(file, p.keys(t), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep()
	with := rootPolicy + "issuers:\n- {name: '" + name + "', keys: " + file + "}\n"
	verify := func() error {
		_, err := r.policies.Verify(p.token(t, name, map[string]any{"roles": "Azure Service Bus Data Owner"}), time.Now())
		return err
	}
	if verify() == nil {
		t.Fatal("a token of nobody counts")
	}
	if done := r.mustReload(t, with); strings.Join(done.Changed, " ") != "issuers" || verify() != nil {
		t.Fatalf("done %+v, %v", done, verify())
	}
	claim, err := r.policies.Verify(p.token(t, name, map[string]any{"roles": "Azure Service Bus Data Owner"}), time.Now())
	if err != nil || !r.policies.Stands(claim) {
		t.Fatal("the claim does not stand")
	}
	p.rename("two")
	if verify() == nil {
		t.Fatal("an unknown key counts")
	}
	keep()
	if done := r.mustReload(t, with); strings.Join(done.Changed, " ") != "issuers" || verify() != nil || !r.policies.Stands(claim) {
		t.Fatalf("done %+v, %v", done, verify())
	}
	if done := r.mustReload(t, rootPolicy); strings.Join(done.Changed, " ") != "issuers" || verify() == nil || r.policies.Stands(claim) {
		t.Fatalf("done %+v, %v", done, verify())
	}
}

// S-229: limits that a reload changes are those that clients meet.
func TestAReloadChangesLimits(t *testing.T) {
	r := openReloading(t, rootPolicy+"limits: {entities: 1}\n")
	put := func(path string) int {
		token := auth.NewToken("http://"+r.host+"/", "root", "rootkey", time.Now().Add(time.Hour))
		res, _ := r.request(t, "PUT", path, atomOf("QueueDescription", ""), token, "Content-Type", dial.AtomEntryType)
		return res.StatusCode
	}
	if one, two := put("/a"), put("/b"); one != 201 || two != 403 {
		t.Fatalf("of two queues: %d, %d", one, two)
	}
	r.mustReload(t, rootPolicy+"limits: {entities: 2, connections: 77, operations: 7, links: 9}\n")
	if status := put("/b"); status != 201 {
		t.Errorf("a second queue: %d", status)
	}
	if got := r.front.Sockets().Limits(); got.Total != 77 || got.Operations != 7 {
		t.Errorf("limits of sockets: %+v", got)
	}
}

// Both root keys open the namespace, so that one can be changed while the other is in use.
func TestRootKeysRotate(t *testing.T) {
	r := openReloading(t, "root-key: old\nroot-key-secondary: rootkey\n")
	check := func(key, want string) {
		t.Helper()
		if got := tries(t, r.target(devKeyName, key), "orders"); got != want {
			t.Errorf("the key %s can %q, want %q", key, got, want)
		}
	}
	token := auth.NewToken("http://"+r.host+"/", devKeyName, "old", time.Now().Add(time.Hour))
	if res, text := r.request(t, "PUT", "/orders", atomOf("QueueDescription", ""), token, "Content-Type", dial.AtomEntryType); res.StatusCode >= 300 {
		t.Fatal(text)
	}
	check("old", "send,receive")
	check("rootkey", "send,receive")
	if err := os.WriteFile(r.file, []byte("root-key: rootkey\nroot-key-secondary: new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reloader.reload(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	check("old", "nothing")
	check("rootkey", "send,receive")
	check("new", "send,receive")
	if err := os.WriteFile(r.file, []byte("root-key-secondary: new\n"+rootPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reloader.reload(t.Context(), "test"); err == nil || !strings.Contains(err.Error(), "needs root-key") {
		t.Errorf("a secondary key alone: %v", err)
	}
}

// A root key that a reload has exchanged is the one by which a new node is taken.
func TestANewNodeHasTheKeyOfAReload(t *testing.T) {
	r := openReloading(t, "root-key: old\nroot-key-secondary: rootkey\n")
	meets := func(key string) error {
		cfg := cluster.Defaults()
		cfg.ClusterName, cfg.Node, cfg.Incarnation = clusterName, "another", 7
		cfg.PeerListen, cfg.GossipListen = "127.0.0.1:0", "127.0.0.1:0"
		cfg.RootKey = func() cluster.Digest { return keyDigest([]policy{{Name: devKeyName, Primary: secret(key)}}) }
		cfg.Versions = func() cluster.Versions {
			return cluster.Versions{Newest: fsm.NewestVersion, Oldest: fsm.OldestVersion}
		}
		m, err := cluster.NewMesh(cfg, func(fsm.NodeID) (string, bool) { return r.mesh.Addr().String(), true }, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		return m.Connect(t.Context(), r.id)
	}
	if old, fresh := meets("old"), meets("rootkey"); old != nil || fresh == nil {
		t.Fatalf("before the reload: the old key %v, the new one %v", old, fresh)
	}
	if err := os.WriteFile(r.file, []byte("root-key: rootkey\nroot-key-secondary: new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reloader.reload(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if old, fresh := meets("old"), meets("rootkey"); old == nil || fresh != nil {
		t.Errorf("after the reload: the old key %v, the new one %v", old, fresh)
	}
}

// The ring of gossip comes from one setting, a list or a file, and a reload turns it.
func TestGossipKeysComeFromAListOrAFile(t *testing.T) {
	one, two := strings.Repeat("A", 43)+"=", strings.Repeat("B", 42)+"A="
	file := filepath.Join(t.TempDir(), "ring")
	keep := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep("# the first encrypts\n" + two + "\n\n" + one + "\n")
	base := "data-dir: /d\nroot-key: k\n"
	for name, c := range map[string]struct {
		text  string
		keys  int
		error string
	}{
		"none": {"", 0, ""}, "one": {"gossip-key: " + one, 1, ""}, "a list": {"gossip-keys: [" + two + ", " + one + "]", 2, ""},
		"a text": {"gossip-keys: " + two + "," + one, 2, ""}, "a file": {"gossip-keys-file: " + file, 2, ""},
		"two settings": {"gossip-key: " + one + "\ngossip-keys-file: " + file, 0, "set one of gossip-key"},
		"a short key":  {"gossip-keys: [" + one + ", AAAA]", 0, "key 2 of 2"},
		"a key twice":  {"gossip-keys: [" + one + ", " + one + "]", 0, "twice"},
		"no such file": {"gossip-keys-file: /nowhere/ring", 0, "no such file"},
		"too many":     {"gossip-keys: [A, A, A, A, A, A, A, A, A]", 0, "want at most 8"},
	} {
		cfg, err := load(writeConfig(t, base+c.text+"\n"), nil, environment(nil))
		if (err != nil) != (c.error != "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", name, err, c.error)
			continue
		}
		if ring, _ := cfg.gossipRing(); err == nil && len(ring) != c.keys {
			t.Errorf("%s: %d keys, want %d", name, len(ring), c.keys)
		}
	}
	r := openReloading(t, rootPolicy+"gossip-keys-file: "+file+"\n")
	keep(one + "\n")
	if done := r.mustReload(t, rootPolicy+"gossip-keys-file: "+file+"\n"); strings.Join(done.Changed, " ") != "gossip-keys-file" {
		t.Errorf("done: %+v", done)
	}
	if done := r.mustReload(t, rootPolicy); strings.Join(done.Restart, " ") != "gossip-keys-file" || len(done.Changed) > 0 {
		t.Errorf("done without keys: %+v", done)
	}
	if strings.Contains(r.log.String(), one[:20]) {
		t.Error("the log tells a key")
	}
}

// Other nodes' certificates may come from an authority as soon as a reload has read it, and no longer than it is there.
func TestAReloadReplacesTheAuthority(t *testing.T) {
	ours, theirs, dir := newAuthority(t, "ours"), newAuthority(t, "theirs"), t.TempDir()
	ours.issue(t, dir, paper{})
	text := rootPolicy + "tls-cert: " + dir + "/node.pem\ntls-key: " + dir + "/node.key\ntls-ca: " + dir + "/ca.pem\n"
	r := openReloading(t, text)
	peers, err := r.peerTLS(r.id)
	if err != nil {
		t.Fatal(err)
	}
	trusts := func(a *authority) bool {
		_, err := a.cert.Verify(x509.VerifyOptions{Roots: peers.CA(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil
	}
	if !trusts(ours) || trusts(theirs) {
		t.Fatal("before the reload")
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.cert.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: theirs.cert.Raw})...)
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), both, 0o600); err != nil {
		t.Fatal(err)
	}
	if done := r.mustReload(t, text); strings.Join(done.Changed, " ") != "tls-ca" || !trusts(ours) || !trusts(theirs) {
		t.Errorf("with both: %+v", done)
	}
	theirs.issue(t, dir, paper{})
	if done := r.mustReload(t, text); strings.Join(done.Changed, " ") != "tls-ca tls-cert" || trusts(ours) || !trusts(theirs) {
		t.Errorf("with the new one: %+v", done)
	}
	writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", ours.cert.Raw)
	if status, answer := r.write(t, text); status != http.StatusUnprocessableEntity || !strings.Contains(answer, "other nodes refuse") || !trusts(theirs) {
		t.Errorf("with an authority that did not sign: %d %s", status, answer)
	}
}
