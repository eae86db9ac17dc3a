package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// In an image without files the binary still knows the public certificate authorities.
func TestAuthoritiesWithoutASystem(t *testing.T) {
	if os.Getenv("BUSBAR_TEST_ROOTS") != "" {
		pool, err := x509.SystemCertPool()
		if err != nil || pool.Equal(x509.NewCertPool()) {
			t.Fatalf("no authority is known: %v", err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAuthoritiesWithoutASystem$", "-test.v")
	cmd.Env = []string{"BUSBAR_TEST_ROOTS=1", "SSL_CERT_FILE=/nowhere", "SSL_CERT_DIR=/nowhere"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v: %s", err, out)
	}
}
