package main

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// heardAt is a listener that only has an address.
type heardAt struct {
	net.Listener
	addr string
}

func (h heardAt) Addr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", h.addr)
	if err != nil {
		panic(err)
	}
	return a
}

// The greeting names the hosts that the listeners have, and warns where other machines reach a node whose key is public.
func TestTheGreetingNamesTheListeners(t *testing.T) {
	for _, tc := range []struct{ amqp, ops, want, not string }{
		{"127.0.0.1:5672", "127.0.0.1:5300", "console:    http://localhost:5300/ in a browser", "WARNING"},
		{"127.0.0.1:5672", "127.0.0.1:5300", "Endpoint=sb://localhost:5672;", "WARNING"},
		{"127.0.0.1:5672", "127.0.0.1:5300", "Try in another terminal: " + os.Args[0] + " queue create orders", "WARNING"},
		{"127.0.0.1:7000", "127.0.0.1:5300", "with the first string as SERVICEBUS_CONNECTION_STRING: " + os.Args[0], "WARNING"},
		{"127.0.3.1:5672", "127.0.0.1:5300", "Endpoint=sb://127.0.3.1:5672;", "localhost:5672"},
		{"[fd00::7]:5672", "127.0.0.1:5300", "Endpoint=sb://[fd00::7]:5672;", "localhost:5672"},
		{"0.0.0.0:5672", "127.0.0.1:5300", "WARNING: 0.0.0.0:5672 is open to other machines, and the key of --dev is public.", "127.0.0.1:5300 is"},
		{"0.0.0.0:5672", "127.0.0.1:5300", "Endpoint=sb://localhost:5672;", "sb://0.0.0.0"},
		{"127.0.0.1:5672", "[::]:5300", "WARNING: [::]:5300 is open to other machines", "http://[::]"},
	} {
		cfg := Config{Dev: true, Console: true}
		_ = cfg.resolve() // of what else is missing
		n := &node{cfg: cfg, doors: &doors{ops: heardAt{addr: tc.ops}, clients: []door{{listener: heardAt{addr: tc.amqp}}}}}
		out := strings.Join(n.greeting(1234*time.Millisecond), "\n")
		if !strings.Contains(out, tc.want) || strings.Contains(out, tc.not) || !strings.Contains(out, "is ready after 1234 ms") {
			t.Errorf("amqp %s, ops %s: want %q and not %q in\n%s", tc.amqp, tc.ops, tc.want, tc.not, out)
		}
	}
}

// The certificate of a development node is for the names that the operator gives it, with each port for the Go SDK.
func TestADevelopmentCertificateHasTheNamesOfTheNode(t *testing.T) {
	names, addresses := devNames([]int{5671, 443}, []string{"", "*", "0.0.0.0", "::", "127.0.0.1", "192.0.2.7", "busbar", "*.example"})
	if want := []string{"localhost", "localhost:5671", "localhost:443", "127.0.0.1:5671", "127.0.0.1:443",
		"127.0.0.1:5671", "127.0.0.1:443", "192.0.2.7:5671", "192.0.2.7:443", "busbar", "busbar:5671", "busbar:443"}; !slices.Equal(names, want) {
		t.Errorf("names %q\nwant  %q", names, want)
	}
	var shown []string
	for _, ip := range addresses {
		shown = append(shown, ip.String())
	}
	if want := []string{"127.0.0.1", "::1", "192.0.2.7"}; !slices.Equal(shown, want) {
		t.Errorf("addresses %q, want %q", shown, want)
	}
	l := openLive(t, nodeConfig(t, func(c *Config) { c.TLSListen, c.AllowedHosts = list{"127.0.0.1:0"}, list{"busbar"} }))
	if got := l.certificates.Load().shown.Leaf; got.VerifyHostname("busbar") != nil || got.VerifyHostname("other") == nil {
		t.Errorf("the node shows a certificate for %q", got.DNSNames)
	}
}

// An ephemeral node takes little space, leaves nothing, and removes what killed ones have left.
func TestAnEphemeralNodeLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	killed, foreign := filepath.Join(tmp, ephemeralPrefix+"KILLED"), filepath.Join(tmp, "other")
	for _, dir := range []string{killed, foreign} {
		if err := os.MkdirAll(filepath.Join(dir, "groups"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "LOCK"), []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := nodeConfig(t, nil)
	cfg.Ephemeral, cfg.DataDir = true, filepath.Join(tmp, ephemeralPrefix+"OWN")
	cfg.DevCADir = filepath.Join(cfg.DataDir, "tls")
	l := openLive(t, cfg)
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("the directory of a node that was killed is left: %v", err)
	}
	var size int64
	err := filepath.WalkDir(l.cfg.DataDir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				size += info.Size()
			}
		}
		return err
	})
	if err != nil || size == 0 || size >= 20<<20 {
		t.Errorf("an empty node takes %d bytes: %v", size, err)
	}
	if err := l.close(t.Context()); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A node that keeps nothing has no data directory and no others.
func TestAnEphemeralNodeIsAlone(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for _, tc := range []struct {
		flags map[string][]string
		want  string
	}{
		{map[string][]string{"ephemeral": {"true"}, "dev": {"true"}}, ""},
		{map[string][]string{"ephemeral": {"true"}, "dev": {"true"}, "data-dir": {"/d"}}, "ephemeral and data-dir exclude each other"},
		{map[string][]string{"ephemeral": {"true"}, "dev": {"true"}, "bootstrap-expect": {"3"}}, "set bootstrap-expect to 1"},
		{map[string][]string{"ephemeral": {"true"}, "dev": {"true"}, "join": {"a:5302"}}, "leave join out"},
	} {
		c, err := load("", tc.flags, none)
		switch {
		case tc.want == "" && (err != nil || !strings.HasPrefix(filepath.Base(c.DataDir), ephemeralPrefix)):
			t.Errorf("%v: %q %v", tc.flags, c.DataDir, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%v: %v, want %q", tc.flags, err, tc.want)
		}
	}
}

// `busbar dev` is `serve --dev` with a place for data and the emulator's file, unless others are given.
func TestDevFillsWhatIsMissing(t *testing.T) {
	home := func(more ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			if value, ok := variables(more...)(name); ok {
				return value, true
			}
			return "/h", name == "HOME"
		}
	}
	there := func(string) (fs.FileInfo, error) { return nil, nil }
	absent := func(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }
	for name, tc := range map[string]struct {
		given          map[string][]string
		env            func(string) (string, bool)
		stat           func(string) (fs.FileInfo, error)
		data, entities string
		fails          string
	}{
		"nothing given":      {map[string][]string{}, home("XDG_DATA_HOME", "/x"), absent, "/x/busbar/dev", "", ""},
		"a file":             {map[string][]string{}, home("XDG_DATA_HOME", "/x"), there, "/x/busbar/dev", "Config.json", ""},
		"another file":       {map[string][]string{"entities": {"e.yaml"}}, home("XDG_DATA_HOME", "/x"), there, "/x/busbar/dev", "e.yaml", ""},
		"a directory":        {map[string][]string{"data-dir": {"/d"}}, home(), absent, "/d", "", ""},
		"from environment":   {map[string][]string{}, home("BUSBAR_DATA_DIR", "/e", "BUSBAR_ENTITIES", "f"), there, "", "", ""},
		"ephemeral":          {map[string][]string{"ephemeral": {"true"}}, home(), absent, "", "", ""},
		"no home":            {map[string][]string{}, home("HOME", ""), absent, "", "", "HOME is not set"},
		"a relative XDG one": {map[string][]string{"data-dir": {"/d"}}, home("XDG_DATA_HOME", "x"), absent, "/d", "", ""},
	} {
		err := forDevelopment(tc.given, tc.env, tc.stat)
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %v, want %q", name, err, tc.fails)
			}
			continue
		}
		if data, file := strings.Join(tc.given["data-dir"], ""), strings.Join(tc.given["entities"], ""); err != nil ||
			data != tc.data || file != tc.entities || tc.given["dev"][0] != "true" {
			t.Errorf("%s: data %q, entities %q, %v; want %q and %q", name, data, file, err, tc.data, tc.entities)
		}
	}
}

// A node that is stopped as soon as it is ready has greeted. One that was never ready, or is closed, has not.
func TestANodeThatIsStoppedAtOnceHasGreeted(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	var out bytes.Buffer
	l.node.greet(stopped, &out)
	if !strings.Contains(out.String(), "is ready after") {
		t.Errorf("a ready node says %q", out.String())
	}
	if err := l.node.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if l.node.greet(stopped, &out); out.Len() != 0 {
		t.Errorf("a closed node says %q", out.String())
	}
}
