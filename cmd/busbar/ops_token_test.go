package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// F6: on the operations port of a node without --dev, commands, the audit and profiles want a token with the Manage
// right on the namespace. Probes, metrics and the state of the cluster want none.
func TestCommandsOfTheOperationsPortWantAToken(t *testing.T) {
	root := policy{Name: "root", Primary: "root key", Rights: list{"Manage"}}
	l := openLive(t, nodeConfig(t, func(c *Config) {
		c.Dev, c.TLSListen, c.Pprof, c.source = false, nil, true, nil
		c.Policies = []policy{root, {Name: "reader", Primary: "reader key", Rights: list{"Listen"}}}
	}))
	token := func(audience, name, key string) string {
		return auth.NewToken("sb://localhost/"+audience, name, key, time.Now().Add(time.Hour))
	}
	tokens := map[string]string{
		"none": "", "of Listen": token("", "reader", "reader key"), "of another key": token("", "root", "reader key"),
		"of one queue": token("q", "root", "root key"), "of Manage": token("", "root", "root key"),
	}
	refused := map[string]int{"none": 401, "of Listen": 403, "of another key": 401, "of one queue": 403}
	for _, c := range []struct {
		method, path string
		open         bool
		want         int // of who may
	}{
		{"POST", client.TransferPath, false, 400}, {"POST", reloadPath, false, 422}, {"POST", client.AuditPath, false, 400}, {"GET", profilesPath + "cmdline", false, 200},
		{"GET", "/metrics", true, 200}, {"GET", "/livez", true, 200}, {"GET", "/readyz", true, 200},
		{"GET", "/health", true, 200}, {"GET", "/api/cluster", true, 200},
	} {
		for name, text := range tokens {
			want, isRefused := refused[name]
			if c.open || !isRefused {
				want = c.want
			}
			status, body := askOps(t, l, c.method, c.path, text)
			if status != want {
				t.Errorf("%s %s with a token %s: %d, want %d: %.200s", c.method, c.path, name, status, want, body)
			}
			if name == "none" && !c.open && !strings.Contains(body, "Manage") {
				t.Errorf("%s %s does not tell what it needs: %s", c.method, c.path, body)
			}
		}
	}
	// The command line says what to do without a connection string, and works with one.
	args := []string{"transfer-leader", "1", "n1", "--ops", l.opsHost()}
	if out, code := execute(t, client.NewClusterCommand(), "", args...); code != exit.Unauthorised ||
		!strings.Contains(out, "--connection-string") {
		t.Errorf("without a connection string: exit code %d: %s", code, out)
	}
	cs := "Endpoint=sb://" + l.host + ";SharedAccessKeyName=root;SharedAccessKey=root key;UseDevelopmentEmulator=true"
	if out, err := debugCommand("audit", "--ops", l.opsHost(), "--connection-string", cs); err != nil {
		t.Errorf("an audit with a connection string: %v: %s", err, out)
	}
}

func askOps(t *testing.T, l *liveNode, method, path, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.opsHost()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A development node asks nobody on its own host for a token, and everybody else: other hosts and proxies.
func TestADevelopmentNodeWantsNoTokenOnLoopback(t *testing.T) {
	policies, err := auth.New(0)
	if err != nil {
		t.Fatal(err)
	}
	reached := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for _, c := range []struct {
		name, from string
		dev        bool
		header     string
		want       int
	}{
		{"loopback", "127.0.0.1:4", true, "", http.StatusTeapot},
		{"loopback over IPv6", "[::1]:4", true, "", http.StatusTeapot},
		{"loopback of IPv4 over IPv6", "[::ffff:127.0.0.1]:4", true, "", http.StatusTeapot},
		{"another host", "10.0.0.1:4", true, "", http.StatusUnauthorized},
		{"a proxy on loopback", "127.0.0.1:4", true, "X-Forwarded-For", http.StatusUnauthorized},
		{"a standard proxy on loopback", "127.0.0.1:4", true, "Forwarded", http.StatusUnauthorized},
		{"loopback with a bad token", "127.0.0.1:4", true, "Authorization", http.StatusUnauthorized},
		{"loopback without --dev", "127.0.0.1:4", false, "", http.StatusUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, resetPath, nil)
			r.RemoteAddr = c.from
			if c.header != "" {
				r.Header.Set(c.header, "x")
			}
			w := httptest.NewRecorder()
			(&opsGuard{policies: policies, now: time.Now, dev: c.dev}).handler(reached).ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%d, want %d: %s", w.Code, c.want, w.Body)
			}
		})
	}
}

// F6: with ops-tls the operations port speaks TLS alone, with the certificate of the clients' ports; the command line
// reaches it through https and --ca-file.
func TestTheOperationsPortSpeaksTLS(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.OpsTLS = true }))
	ca := filepath.Join(l.node.cfg.DevCADir, "ca.pem")
	args := []string{"status", "--ops", "https://" + l.opsHost()}
	if out, code := execute(t, client.NewClusterCommand(), "", append(args, "--ca-file", ca)...); code != 0 ||
		!strings.Contains(out, "PARTITION") {
		t.Errorf("with the authority: exit code %d: %s", code, out)
	}
	if out, code := execute(t, client.NewClusterCommand(), "", args...); code != exit.Failed || !strings.Contains(out, "x509") {
		t.Errorf("without the authority: exit code %d: %s", code, out)
	}
	if status, body := askOps(t, l, http.MethodGet, "/api/cluster", ""); status != http.StatusBadRequest {
		t.Errorf("plain HTTP: %d: %s", status, body)
	}
}

// A node that has no certificate to show on the operations port does not start.
func TestTLSOfTheOperationsPortWantsACertificate(t *testing.T) {
	_, err := load("", map[string][]string{"data-dir": {t.TempDir()}, "root-key": {"k"}, "ops-tls": {"true"}}, environment(nil))
	if err == nil || !strings.Contains(err.Error(), "ops-tls needs tls-cert and tls-key") {
		t.Errorf("a node without a certificate: %v", err)
	}
}
