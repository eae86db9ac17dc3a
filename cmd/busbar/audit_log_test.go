package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// audited is a live node with an audit log.
type audited struct {
	*liveNode
	t    *testing.T
	file string
}

func openAudited(t *testing.T, change func(*Config)) *audited {
	t.Helper()
	a := &audited{t: t, file: filepath.Join(t.TempDir(), "audit.log")}
	a.liveNode = openLive(t, nodeConfig(t, func(c *Config) {
		c.AuditLog = a.file
		if change != nil {
			change(c)
		}
	}))
	return a
}

func (a *audited) text() string {
	a.t.Helper()
	text, err := os.ReadFile(a.file)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

func (a *audited) events() (all []audit.Event) {
	a.t.Helper()
	for line := range strings.Lines(a.text()) {
		var e audit.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			a.t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// wait returns the newest event that fits; the log is written by a goroutine of its own.
func (a *audited) wait(what string, fits func(audit.Event) bool) audit.Event {
	a.t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		all := a.events()
		for i := len(all) - 1; i >= 0; i-- {
			if fits(all[i]) {
				return all[i]
			}
		}
		select {
		case <-a.t.Context().Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	a.t.Fatalf("no event of %s in\n%s", what, a.text())
	return audit.Event{}
}

func (a *audited) named(action, outcome string) audit.Event {
	a.t.Helper()
	return a.wait(action+" "+outcome, func(e audit.Event) bool { return e.Action == action && e.Outcome == outcome })
}

// ops asks the operations port with the root key and wants a status below 300.
func (a *audited) ops(method, path, body string) string {
	a.t.Helper()
	res, text := a.requestTo(a.t, a.opsHost(), method, path, body, "", "User-Agent", "ops/1")
	if res.StatusCode >= 300 {
		a.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	return text
}

// backup takes a backup, which a young node refuses until all its partitions have leaders.
func (a *audited) backup() string {
	a.t.Helper()
	for began := time.Now(); ; {
		res, text := a.requestTo(a.t, a.opsHost(), http.MethodPost, backupsPath, "", "")
		switch {
		case res.StatusCode == http.StatusOK:
			return text
		case res.StatusCode != http.StatusServiceUnavailable || time.Since(began) > time.Minute:
			a.t.Fatalf("a backup: %d %s", res.StatusCode, text)
		}
		select {
		case <-a.t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Each change of an entity is a line that says who, from where, what, and what it was before.
func TestChangesOfEntitiesAreAudited(t *testing.T) {
	a := openAudited(t, nil)
	a.put(t, "/q", "QueueDescription", "<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>", "User-Agent", "sdk/1")
	made := a.named("entity.create", audit.OK)
	if made.Who.Policy != devKeyName || made.Who.Kind != "policy" || made.Via != audit.ViaManagement || made.Agent != "sdk/1" || made.Entity != "q" ||
		made.Node != "n1" || !strings.HasPrefix(made.Remote, "127.0.0.1:") || made.Status != 201 || made.After["LockDuration"] != "30s" || made.Before != nil {
		t.Errorf("a creation: %+v", made)
	}
	rule := "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>app</KeyName>" +
		"<PrimaryKey>c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=</PrimaryKey></AuthorizationRule></AuthorizationRules>"
	a.put(t, "/q", "QueueDescription", "<LockDuration>PT45S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"+rule, "If-Match", "*")
	changed := a.named("entity.update", audit.OK)
	if len(changed.Before) != 2 || changed.Before["LockDuration"] != "30s" || changed.After["LockDuration"] != "45s" ||
		!strings.Contains(fmt.Sprint(changed.After["AuthorizationRules"]), "keys:new") {
		t.Errorf("an update: %+v", changed)
	}
	a.put(t, "/t", "TopicDescription", "")
	a.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	a.put(t, "/t/Subscriptions/s/Rules/r", "RuleDescription", `<Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter>`)
	if e := a.named("rule.create", audit.OK); e.Entity != "t/Subscriptions/s/Rules/r" || !strings.Contains(fmt.Sprint(e.After), "a = 1") {
		t.Errorf("a rule: %+v", e)
	}
	if res, text := a.request(t, http.MethodPut, "/q", atomOf("QueueDescription", ""), "", "Content-Type", dial.AtomEntryType); res.StatusCode != http.StatusConflict {
		t.Fatalf("a queue that is there: %d %s", res.StatusCode, text)
	} else if e := a.named("entity.create", "MessagingEntityAlreadyExists"); e.Tracking == "" || !strings.Contains(text, e.Tracking) || e.Status != 409 {
		t.Errorf("a refusal: %+v, and the client read %s", e, text)
	}
	if res, _ := a.request(t, http.MethodDelete, "/q", "", ""); res.StatusCode != http.StatusOK {
		t.Fatalf("delete: %d", res.StatusCode)
	}
	if e := a.named("entity.delete", audit.OK); e.Before["LockDuration"] != "45s" || e.After != nil {
		t.Errorf("a deletion: %+v", e)
	}
	a.request(t, http.MethodGet, "/t", "", "")
	a.request(t, http.MethodPost, "/v?validate=true", atomOf("QueueDescription", ""), "", "Content-Type", dial.AtomEntryType)
	for _, e := range a.events() {
		if e.Method == http.MethodGet || e.Path == "/v" {
			t.Errorf("what changes nothing is in the log: %+v", e)
		}
	}
	for _, secret := range []string{"c2VjcmV0", devKey, "SharedAccessSignature", "sig="} {
		if strings.Contains(a.text(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}

// What operators do through their port has lines with numbers, and so has what they read of messages.
func TestOperatorsAreAudited(t *testing.T) {
	a := openAudited(t, func(c *Config) { c.Pprof = true })
	a.put(t, "/q", "QueueDescription", "")
	for range 3 {
		a.ops(http.MethodPost, "/q/messages", "body of a message")
	}
	if e := a.named("message.send", audit.OK); e.Entity != "q" || e.Via != audit.ViaOperations {
		t.Errorf("a send: %+v", e)
	}
	const q = "/api/entities/q/"
	a.ops(http.MethodGet, q+"messages?max=2", "")
	if e := a.named("messages.read", audit.OK); e.Counts["messages"] != 2 || e.Parameters["max"] != "2" || e.Agent != "ops/1" || e.Entity != "q" {
		t.Errorf("a read: %+v", e)
	}
	a.ops(http.MethodPost, q+"purge", "")
	if e := a.named("messages.purge", audit.OK); e.Counts["messages"] != 3 {
		t.Errorf("a purge: %+v", e)
	}
	a.ops(http.MethodPatch, q+"options", `{"noDeadLetter":true}`)
	if e := a.named("entity.options", audit.OK); e.Before["NoDeadLetter"] != false || e.After["NoDeadLetter"] != true {
		t.Errorf("options: %+v", e)
	}
	a.ops(http.MethodPost, q+"suspend", "")
	if e := a.named("entity.suspend", audit.OK); e.Before["Status"] != "Active" || e.After["Status"] != "Disabled" {
		t.Errorf("a suspension: %+v", e)
	}
	a.ops(http.MethodPost, q+"resume", "")
	a.named("entity.resume", audit.OK)
	var backup struct{ ID string }
	if err := json.Unmarshal([]byte(a.backup()), &backup); err != nil {
		t.Fatal(err)
	}
	if e := a.named("backup.create", audit.OK); e.After["id"] != backup.ID {
		t.Errorf("a backup: %+v", e)
	}
	a.ops(http.MethodGet, backupsPath+"/"+backup.ID+"/catalog", "")
	a.named("backup.read-catalog", audit.OK)
	a.ops(http.MethodDelete, backupsPath+"/"+backup.ID, "")
	a.named("backup.delete", audit.OK)
	a.ops(http.MethodGet, profilesPath+"cmdline", "")
	a.named("profiles.read", audit.OK)
	a.ops(http.MethodPost, client.AuditPath+"?partition=1", "")
	a.named("debug.audit", audit.OK)
	a.requestTo(t, a.opsHost(), http.MethodPost, client.TransferPath+"?partition=1&to=nobody", "", "")
	e := a.wait("a transfer", func(e audit.Event) bool { return e.Action == "cluster.transfer-leader" })
	if e.Outcome == audit.OK || e.Parameters["to"] != "nobody" || e.Who.Policy != devKeyName {
		t.Errorf("a transfer to nobody: %+v", e)
	}
	a.amqpSession(t, map[string]any{"product": "closes"})
	a.ops(http.MethodPost, client.CloseConnectionsPath+"?client=closes", "")
	if e := a.named("connections.close", audit.OK); e.Counts["connections"] != 1 {
		t.Errorf("a close: %+v", e)
	}
	if status, _ := askOps(t, a.liveNode, http.MethodPost, resetPath, ""); status != http.StatusOK {
		t.Fatalf("reset: %d", status)
	}
	if e := a.named("entities.reset", audit.OK); e.Counts["entities"] != 1 || e.Who.Kind != "development" {
		t.Errorf("a reset: %+v", e)
	}
	if strings.Contains(a.text(), "body of a message") {
		t.Error("the log has a body")
	}
}

// Rules that clients change over AMQP are in the log, with the key that opened them.
func TestRulesOverAMQPAreAudited(t *testing.T) {
	a := openAudited(t, nil)
	a.put(t, "/t", "TopicDescription", "")
	a.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	w, err := dial.Connect(t.Context(), a.target(devKeyName, devKey), "t/Subscriptions/s", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := w.OpenRequests(t.Context(), "t/Subscriptions/s/$management")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ask := func(operation string, body map[string]any) error {
		_, err := r.Call(t.Context(), &amqp.Message{ApplicationProperties: map[string]any{"operation": operation}, Value: body})
		return err
	}
	rule := map[string]any{"rule-name": "big", "rule-description": map[string]any{"sql-filter": map[string]any{"expression": "size > 3"}}}
	if err := ask("com.microsoft:add-rule", rule); err != nil {
		t.Fatal(err)
	}
	if e := a.named("rule.create", audit.OK); e.Via != audit.ViaAMQP || e.Entity != "t/Subscriptions/s" || e.Who.Policy != devKeyName ||
		!strings.Contains(fmt.Sprint(e.After), "size > 3") || e.Remote == "" || e.Agent == "" {
		t.Errorf("a rule: %+v", e)
	}
	if err := ask("com.microsoft:add-rule", rule); err == nil {
		t.Fatal("a rule of a name that is taken")
	}
	if e := a.named("rule.create", "MessagingEntityAlreadyExists"); e.Tracking == "" {
		t.Errorf("a refusal: %+v", e)
	}
	if err := ask("com.microsoft:remove-rule", map[string]any{"rule-name": "big"}); err != nil {
		t.Fatal(err)
	}
	if e := a.named("rule.delete", audit.OK); e.After != nil {
		t.Errorf("a removal: %+v", e)
	}
}

// F8: refused keys and tokens are in the log, by what is known of them; they cannot fill the disk, and no key shows.
func TestRefusedClaimsAreAuditedAndBounded(t *testing.T) {
	a := openAudited(t, nil)
	a.put(t, "/q", "QueueDescription", "")
	if _, err := amqp.Dial(t.Context(), "amqp://"+a.host, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(devKeyName, "a-wrong-key")}); err == nil {
		t.Fatal("a wrong key opens")
	}
	if e := a.named("access", "Unauthorized"); e.Via != audit.ViaAMQP || e.Who.Kind != "nobody" || e.Who.Policy != devKeyName || e.Reason == "" {
		t.Errorf("a wrong key: %+v", e)
	}
	// The name and the key in each other's place.
	if _, err := amqp.Dial(t.Context(), "amqp://"+a.host, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(devKey, devKeyName)}); err == nil {
		t.Fatal("a key opens as a name")
	}
	bad := auth.NewToken("http://localhost/", devKeyName, "a-wrong-key", time.Now().Add(time.Hour))
	const tries = 300
	for range tries {
		if res, _ := a.request(t, http.MethodGet, "/q", "", bad); res.StatusCode != http.StatusUnauthorized {
			t.Fatalf("a wrong token: %d", res.StatusCode)
		}
	}
	if res, _ := a.request(t, http.MethodPost, "/q/messages", "x", bad); res.StatusCode != http.StatusUnauthorized {
		t.Fatalf("a send with a wrong token: %d", res.StatusCode)
	}
	a.ops(http.MethodPost, "/api/entities/q/purge", "") // what is done has its line all the same
	a.named("messages.purge", audit.OK)
	refused := 0
	for _, e := range a.events() {
		if e.Outcome != audit.OK {
			refused++
		}
	}
	if dropped := a.audit.Counts().Bounded.Load(); refused > 40 || dropped < tries-40 {
		t.Errorf("%d lines, %d dropped of %d refusals", refused, dropped, tries)
	}
	_, metrics := a.requestTo(t, a.opsHost(), http.MethodGet, "/metrics", "", "")
	if !strings.Contains(metrics, `busbar_audit_events_dropped_total{reason="bound"} `) || !strings.Contains(metrics, `busbar_alarm{alarm="audit-log"} 0`) {
		t.Error("the metrics do not tell of it")
	}
	for _, secret := range []string{"a-wrong-key", devKey, "sig="} {
		if strings.Contains(a.text(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}

// Sessions of the console begin and end in the log, and what its pages do is told as done by the console.
func TestTheConsoleIsAudited(t *testing.T) {
	a := openAudited(t, func(c *Config) { c.Console = true })
	b := newBrowser(t, a.liveNode)
	sign := func(body string) int {
		code, _ := b.ask("POST", "/$console/session", body, "Content-Type", "application/json")
		return code
	}
	if code := sign(`{"policy":"` + devKeyName + `","key":"a-wrong-key"}`); code != http.StatusUnauthorized {
		t.Fatalf("a wrong key: %d", code)
	}
	if e := a.named("console.sign-in", "Unauthorized"); e.Who.Policy != devKeyName || e.Who.Kind != "nobody" || e.Remote == "" {
		t.Errorf("a refused sign-in: %+v", e)
	}
	if code := sign(`{"development":true}`); code != http.StatusOK {
		t.Fatalf("a click: %d", code)
	}
	if e := a.named("console.sign-in", audit.OK); e.Who.Policy != devKeyName || e.Agent != "Mozilla/5.0" {
		t.Errorf("a sign-in: %+v", e)
	}
	if code, text := b.ask("PUT", "/$console/port/q", atomOf("QueueDescription", ""), "Content-Type", dial.AtomEntryType); code != http.StatusCreated {
		t.Fatalf("a queue: %d %s", code, text)
	}
	if e := a.named("entity.create", audit.OK); e.Via != audit.ViaConsole || e.Path != "/q" || e.Who.Policy != devKeyName {
		t.Errorf("a queue: %+v", e)
	}
	if code, text := b.ask("DELETE", "/$console/session", ""); code != http.StatusOK {
		t.Fatalf("sign-out: %d %s", code, text)
	}
	a.named("console.sign-out", audit.OK)
	if strings.Contains(a.text(), "a-wrong-key") {
		t.Error("the log has a key")
	}
}

// A reload opens the file again, as logrotate wants, even if the configuration has a mistake.
func TestAReloadReopensTheAuditLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	text := "audit-log: " + file + "\n" + rootPolicy
	r := openReloading(t, text)
	a := &audited{liveNode: r.liveNode, t: t, file: file}
	a.named("node.start", audit.OK)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if status, answer := r.write(t, text+"nonsense: 1\n"); status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s", status, answer)
	}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
		}
	}
	a.named("audit.reopened", audit.OK)
	if e := a.named("configuration.reload", "InvalidArgument"); e.Who.Policy != "root" {
		t.Errorf("a reload: %+v", e)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	r.mustReload(t, text+"log-level: debug\n")
	if e := a.named("configuration.reload", audit.OK); fmt.Sprint(e.After["changed"]) != "[log-level]" {
		t.Errorf("a reload: %+v", e)
	}
}

// A full disk raises an alarm and is counted, and the node serves.
func TestAFullDiskOfTheAuditLogStopsNobody(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no device that is full")
	}
	l := openLive(t, nodeConfig(t, func(c *Config) { c.AuditLog = "/dev/full" }))
	l.put(t, "/q", "QueueDescription", "")
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		_, status := l.requestTo(t, l.opsHost(), http.MethodGet, "/api/cluster", "", "")
		_, metrics := l.requestTo(t, l.opsHost(), http.MethodGet, "/metrics", "", "")
		if strings.Contains(status, `"name":"audit-log"`) && strings.Contains(metrics, `busbar_alarm{alarm="audit-log"} 1`) &&
			!strings.Contains(metrics, "busbar_audit_write_failures_total 0") {
			return
		}
	}
	t.Error("no alarm is raised")
}

// A node that cannot open its audit log does not start, and a setting that is none is told.
func TestAnAuditLogThatCannotBeOpened(t *testing.T) {
	given := map[string][]string{"dev": {"true"}, "data-dir": {t.TempDir()}, "audit-log": {"syslog:telnet://h:1"}}
	if _, err := load("", given, environment(nil)); err == nil || !strings.Contains(err.Error(), "want udp, tcp or unix") {
		t.Errorf("%v", err)
	}
}
