package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func devPool(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "PRIVATE") {
		t.Fatal("ca.pem holds a private key")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("ca.pem holds no certificate")
	}
	return pool
}

func leaf(t *testing.T, c tls.Certificate) *x509.Certificate {
	t.Helper()
	l, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The Go SDK passes host and port together as the name to verify.
func TestDevelopmentCertificateFitsEveryNameOfLoopback(t *testing.T) {
	dir := t.TempDir()
	c, err := devCertificate(dir, []int{5671, 443})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "localhost:5671", "localhost:443", "127.0.0.1:5671"} {
		if _, err := leaf(t, c).Verify(x509.VerifyOptions{Roots: devPool(t, dir), DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leaf(t, c).Verify(x509.VerifyOptions{Roots: devPool(t, dir), DNSName: "localhost:1"}); err == nil {
		t.Error("a port that is not served verifies")
	}
}

func TestNodesThatStartTogetherShareOneCA(t *testing.T) {
	dir := t.TempDir()
	certs := make([]tls.Certificate, 8)
	var wg sync.WaitGroup
	for i := range certs {
		wg.Go(func() {
			c, err := devCertificate(dir, nil)
			if err != nil {
				t.Error(err)
			}
			certs[i] = c
		})
	}
	wg.Wait()
	for _, c := range certs {
		if _, err := leaf(t, c).Verify(x509.VerifyOptions{Roots: devPool(t, dir), DNSName: "localhost"}); err != nil {
			t.Error(err)
		}
	}
	st, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v", st.Mode(), err)
	}
}

func TestDamagedCASaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := devCertificate(dir, nil); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("error %v", err)
	}
}
