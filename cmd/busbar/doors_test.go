package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// writeNodeCertificate makes a certificate that is its own authority, with a URI among its names unless it is empty, and
// returns the names of its files.
func writeNodeCertificate(t *testing.T, uri string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("node.pem", "CERTIFICATE", der), write("node.key", "EC PRIVATE KEY", encoded)
}

// F7: with require-node-uri a node takes no certificate that does not name its node, and does not start with one.
func TestCertificatesMustNameTheirNodeWhereAsked(t *testing.T) {
	base := "data-dir: /d\nroot-key: k\ngossip-key: " + strings.Repeat("A", 43) + "=\n"
	required := "require-node-uri: true\n"
	for _, c := range []struct {
		name, file, uri string
		env             map[string]string
		want            bool   // the others' certificates must name their nodes
		refused         string // in the error of the start
	}{
		{name: "by default", uri: ""},
		{name: "from the file", file: required, uri: "busbar://node/n1", want: true},
		{name: "from the environment", env: map[string]string{"BUSBAR_REQUIRE_NODE_URI": "true"}, uri: "busbar://node/n1", want: true},
		{name: "without a name of its own", file: required, refused: "subject alternative name URI:busbar://node/n1"},
		{name: "with another node's name", file: required, uri: "busbar://node/n10", refused: "URI:busbar://node/n1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cert, key := writeNodeCertificate(t, c.uri)
			cfg, err := load(writeConfig(t, base+c.file+"tls-ca: "+cert+"\ntls-cert: "+cert+"\ntls-key: "+key+"\n"), nil,
				environment(c.env))
			if err != nil {
				t.Fatal(err)
			}
			n := &node{cfg: cfg, id: "n1", incarnation: 1, log: hclog.NewNullLogger()}
			var stop context.CancelFunc
			n.background, stop = context.WithCancel(t.Context())
			n.cancel = stop
			defer stop()
			if err := n.openCertificates(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := n.clusterConfig()
			switch {
			case c.refused != "":
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("error %v, want one about %s", err, c.refused)
				}
			case err != nil || got.TLS.RequireNodeURI != c.want:
				t.Errorf("%+v, %v, want required %t", got.TLS, err, c.want)
			}
		})
	}
	_, err := load(writeConfig(t, base+required), nil, environment(nil))
	if err == nil || !strings.Contains(err.Error(), "require-node-uri needs tls-ca") {
		t.Errorf("without certificates: %v", err)
	}
}

// A port in use is told with what to do about it.
func TestAPortInUseIsToldWithItsCure(t *testing.T) {
	l, err := listen(t.Context(), "ops-listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	again, err := listen(t.Context(), "ops-listen", l.Addr().String())
	if err == nil {
		again.Close()
		t.Fatal("two listeners have one port")
	}
	for _, want := range []string{"ops-listen " + l.Addr().String(), "address already in use", "choose another port by --ops-listen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
