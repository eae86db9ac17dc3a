package client

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where the operations port that is asked has TLS, the others are asked by TLS as well: a token goes to none in the clear.
func TestOtherNodesAreAskedByTLSToo(t *testing.T) {
	const cs = "Endpoint=sb://h;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
	var nodes []string
	serve := func(n int) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/cluster" {
				_, _ = io.WriteString(w, `{"nodes":[`+strings.Join(nodes, ",")+`]}`)
				return
			}
			_, _ = fmt.Fprintf(w, `{"transactions":[{"id":"of n%d"}]}`, n)
		}))
		t.Cleanup(s.Close)
		nodes = append(nodes, fmt.Sprintf(`{"id":"n%d","operations":%q}`, n, strings.TrimPrefix(s.URL, "https://")))
		return s
	}
	first := serve(1)
	serve(2)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := execute(t, NewQueueCommand(), "", "transactions", "orders", "--connection-string", cs, "--ops", first.URL, "--ca-file", ca)
	if code != 0 || !strings.Contains(out, "of n1") || !strings.Contains(out, "of n2") || strings.Contains(out, "do not answer") {
		t.Errorf("%d\n%s", code, out)
	}
}
