package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// reloadFile is the configuration of a node of one, with certificates in dir; more may set the rest.
func reloadFile(dir, more string) string {
	return "root-key: rootkey\namqp-listen: ['127.0.0.1:0']\ntls-listen: ['127.0.0.1:0']\nops-listen: '127.0.0.1:0'\n" +
		"peer-listen: '127.0.0.1:0'\ngossip-listen: '127.0.0.1:0'\nadvertise: 127.0.0.1\nbootstrap-expect: 1\npartitions: 1\nlog-format: text\n" +
		"tls-cert: " + dir + "/node.pem\ntls-key: " + dir + "/node.key\ntls-ca: " + dir + "/ca.pem\n" + more
}

// shown is the name in the certificate that a new client is shown.
func shown(t *testing.T, address string) string {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test looks at it itself
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// A hangup has the node read its configuration and its certificates again. It does not end the process.
func TestAHangupReloadsAProcess(t *testing.T) {
	ours, dir := newAuthority(t, "ours"), t.TempDir()
	ours.issue(t, dir, paper{name: "first"})
	file := writeConfig(t, reloadFile(dir, ""))
	p := startProcess(t, file)
	if got := shown(t, p.secure); got != "first" {
		t.Fatalf("the certificate is of %q", got)
	}
	ours.issue(t, dir, paper{name: "second"})
	p.signal(syscall.SIGHUP)
	p.awaitLog("changed=tls-cert")
	if got := shown(t, p.secure); got != "second" {
		t.Errorf("after the reload the certificate is of %q", got)
	}

	// A key that does not fit changes nothing, and neither does a file that is no YAML.
	other := t.TempDir()
	ours.issue(t, other, paper{name: "third"})
	mustRename(t, filepath.Join(other, "node.pem"), filepath.Join(dir, "node.pem"))
	p.signal(syscall.SIGHUP)
	p.awaitLog("private key does not match public key")
	if err := os.WriteFile(file, []byte("log-level: loud\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.awaitLog("want trace, debug, info, warn, error or auto")
	if got := shown(t, p.secure); got != "second" {
		t.Errorf("after broken files the certificate is of %q", got)
	}

	// What cannot change is named, and what can is changed beside it.
	mustRename(t, filepath.Join(other, "node.key"), filepath.Join(dir, "node.key"))
	if err := os.WriteFile(file, []byte(reloadFile(dir, "replication-factor: 1\nnode-id: another\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.awaitLog("the old value stays until then")
	p.await("the third certificate", func() bool { return shown(t, p.secure) == "third" })
	if log := p.log.String(); !strings.Contains(log, "setting=node-id") {
		t.Errorf("the log does not name the setting: %s", log)
	}
	// A renewed certificate needs no signal.
	ours.issue(t, dir, paper{name: "fourth"})
	p.awaitLog(`by="changed files" changed=tls-cert`)
	if got := shown(t, p.secure); got != "fourth" {
		t.Errorf("after a change of the files the certificate is of %q", got)
	}
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d, %s", code, p.log)
	}
}

// The first SIGTERM begins an orderly stop, a second one ends the process at once.
func TestASecondTermEndsAProcess(t *testing.T) {
	dir := t.TempDir()
	newAuthority(t, "ours").issue(t, dir, paper{})
	p := startProcess(t, writeConfig(t, reloadFile(dir, "")))
	// A request that never ends keeps the operations port, and with it the stop, waiting. The port accepts connections in their
	// order, so the answer over a second one says that it has accepted the first.
	hanging, err := net.Dial("tcp", p.ops)
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	if _, err := hanging.Write([]byte("GET /livez HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get("http://" + p.ops + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Fatalf("the node is alive: %s", answer.Status)
	}
	p.signal(syscall.SIGTERM)
	p.awaitLog("another signal ends the process at once")
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != exit.CutOff || !strings.Contains(p.log.String(), "a second signal") {
		t.Errorf("exit code %d, want %d: %s", code, exit.CutOff, p.log)
	}
}
