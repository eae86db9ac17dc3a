package cluster

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func TestMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	require := func(s *TLS) *TLS { s.RequireNodeURI = true; return s }
	for _, c := range []struct {
		name   string
		a, b   *TLS
		answer bool
	}{
		{"certificates that name their nodes", ours.tls(t, "busbar://node/a"), ours.tls(t, "busbar://node/b"), true},
		{"certificates without names", ours.tls(t), ours.tls(t), true},
		{"one of several names", ours.tls(t, "spiffe://x/y", "busbar://node/c", "busbar://node/a"), ours.tls(t), true},
		{"the dialler has another node's certificate", ours.tls(t, "busbar://node/c"), ours.tls(t), false},
		{"the listener has another node's certificate", ours.tls(t), ours.tls(t, "busbar://node/c"), false},
		{"a name that only begins right", ours.tls(t, "busbar://node/a/x"), ours.tls(t), false},
		{"a name that must be there is not", ours.tls(t), require(ours.tls(t, "busbar://node/b")), false},
		{"the dialler is of another authority", theirs.tls(t, "busbar://node/a"), ours.tls(t), false},
		{"the listener is of another authority", ours.tls(t), theirs.tls(t), false},
		{"the dialler speaks plaintext", nil, ours.tls(t), false},
		{"the listener speaks plaintext", ours.tls(t), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var names book
			ca, cb := testConfig("a"), testConfig("b")
			ca.TLS, cb.TLS = c.a, c.b
			if !c.answer {
				ca.HelloTimeout, cb.HelloTimeout = 2*time.Second, 2*time.Second
			}
			a, _ := startNode(t, &names, ca), startNode(t, &names, cb)
			got, err := a.Call(testContext(t), "b", kindEcho, []byte("secret"))
			switch {
			case c.answer && (err != nil || string(got) != "secret"):
				t.Errorf("got %q, %v; want an answer", got, err)
			case !c.answer && !errors.Is(err, fsm.ErrUnavailable):
				t.Errorf("got %q, %v; want ErrUnavailable", got, err)
			}
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	ca := newAuthority(t)
	var names book
	cfg := testConfig("a")
	cfg.TLS = ca.tls(t)
	a := startNode(t, &names, cfg)
	client := ca.tls(t)
	for _, c := range []struct {
		name string
		conf *tls.Config
		want bool
	}{
		{"TLS 1.3 with a certificate", &tls.Config{GetClientCertificate: client.config(true).GetClientCertificate}, true},
		{"TLS 1.2", &tls.Config{
			MaxVersion: tls.VersionTLS12, GetClientCertificate: client.config(true).GetClientCertificate,
		}, false},
		{"no certificate", &tls.Config{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.conf.RootCAs, c.conf.InsecureSkipVerify = client.CA(), true
			conn := tls.Client(dialRaw(t, a), c.conf)
			conn.SetDeadline(time.Now().Add(patience))
			conn.Write(appendHello(nil, identity{cluster: "test", node: "z", incarnation: 9}))
			id, err := readHello(conn)
			if got := err == nil && id.node == "a"; got != c.want {
				t.Errorf("welcomed %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestPlaintextStaysOnTheMachine(t *testing.T) {
	for _, c := range []struct {
		listen    string
		tls       *TLS
		plaintext bool
		want      bool
	}{
		{"127.0.0.1:0", nil, false, true},
		{"localhost:0", nil, false, true},
		{"[::1]:0", nil, false, true},
		{":5301", nil, false, false},
		{"0.0.0.0:5301", nil, false, false},
		{"10.1.2.3:5301", nil, false, false},
		{":5301", nil, true, true},
		{":5301", newAuthority(t).tls(t), false, true},
	} {
		cfg := testConfig("a")
		cfg.PeerListen, cfg.TLS, cfg.AllowPlaintext = c.listen, c.tls, c.plaintext
		if err := cfg.Validate(); (err == nil) != c.want {
			t.Errorf("listen on %s, TLS %v, allowed %v: %v, want valid %v",
				c.listen, c.tls != nil, c.plaintext, err, c.want)
		}
	}
}
