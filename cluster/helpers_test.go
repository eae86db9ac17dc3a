package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// The kinds of calls that test nodes serve.
const (
	kindEcho  uint8 = 200 // answers with the request
	kindPark  uint8 = 201 // answers when its context ends, with an error
	kindFail  uint8 = 202 // answers with an error that is the request's text
	kindDrain uint8 = 203 // a stream: answers with the number of body bytes and their sum
	kindHuge  uint8 = 204 // answers with more than a frame may hold
	kindLazy  uint8 = 205 // a stream: answers without reading the body
	kindStall uint8 = 206 // a stream: parks without reading the body
	kindSlow  uint8 = 207 // answers after slowTime, whatever its context does
)

// book resolves the nodes of one test.
type book struct {
	mu    sync.Mutex
	addrs map[fsm.NodeID]string
}

func (b *book) resolve(id fsm.NodeID) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := b.addrs[id]
	return a, ok
}

func (b *book) set(id fsm.NodeID, addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addrs == nil {
		b.addrs = map[fsm.NodeID]string{}
	}
	b.addrs[id] = addr
}

// patience is for what comes, on a machine that is busy with other things.
const patience = time.Minute

// testConfig listens on a free port of the loopback interface.
func testConfig(id fsm.NodeID) Config {
	cfg := Defaults()
	cfg.ClusterName = "test"
	cfg.Node = id
	cfg.Incarnation = 1
	cfg.PeerListen = "127.0.0.1:0"
	cfg.GossipListen = "127.0.0.1:0"
	return cfg
}

// node is a mesh with the test kinds served.
type node struct {
	*Mesh
	parked   chan struct{} // one token per handler that parked
	unparked chan struct{} // one token per parked handler whose context ended
	gate     chan struct{} // closed to let handlers of large answers go on
}

func newNode(t testing.TB, b *book, cfg Config) *node {
	t.Helper()
	m, err := NewMesh(cfg, b.resolve, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Mesh: m, parked: make(chan struct{}, 1024), unparked: make(chan struct{}, 1024), gate: make(chan struct{})}
	n.serveTestKinds()
	return n
}

func startNode(t testing.TB, b *book, cfg Config) *node {
	t.Helper()
	n := newNode(t, b, cfg)
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	b.set(cfg.Node, n.Addr().String())
	t.Cleanup(func() { n.Close() })
	return n
}

// trio starts a and b, which know each other.
func duo(t testing.TB, change func(*Config)) (a, b *node) {
	t.Helper()
	var names book
	make := func(id fsm.NodeID) *node {
		cfg := testConfig(id)
		if change != nil {
			change(&cfg)
		}
		return startNode(t, &names, cfg)
	}
	return make("a"), make("b")
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// authority is a certificate authority of one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// tls returns settings with a certificate for these URIs.
func (a *authority) tls(t testing.TB, uris ...string) *TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &TLS{Certificate: func() (*tls.Certificate, error) { return cert, nil }, CA: func() *x509.CertPool { return pool }}
}

// settleGoroutines fails if more goroutines than before stay for good. They end on their own soon
// after Close has returned, so it lets them run and counts again.
func settleGoroutines(t testing.TB, before int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks)
		}
		runtime.Gosched()
		runtime.GC()
	}
}

func mustCall(t testing.TB, from *node, to fsm.NodeID, text string) {
	t.Helper()
	got, err := from.Call(testContext(t), to, kindEcho, []byte(text))
	if err != nil || string(got) != text {
		t.Fatalf("call to %s: %q, %v; want %q", to, got, err, text)
	}
}
