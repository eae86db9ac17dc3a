package suites

import (
	"fmt"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

// certify writes ca.pem, server.pem and server.key into dir. The Go SDK takes the whole authority of
// its endpoint for the server's name, the port as well, so the certificate has names with ports, too.
func certify(t *testing.T, dir string, ports ...int) {
	t.Helper()
	names := []string{namespace}
	for _, p := range ports {
		names = append(names, fmt.Sprintf("localhost:%d", p))
	}
	if err := cluster.Certify(dir, names, nil); err != nil {
		t.Fatal(err)
	}
}
