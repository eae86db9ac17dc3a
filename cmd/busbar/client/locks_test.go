package client

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// S-272: a lock is shown as the node tells it that knows who took it; one node that does not answer
// takes away the names of its clients alone.
func TestLocksAreNamedByTheNodesOfTheirClients(t *testing.T) {
	const cs = "Endpoint=sb://h;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
	silent := httptest.NewServer(http.NotFoundHandler())
	var nodes []string
	serve := func(named int) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/cluster" {
				_, _ = io.WriteString(w, `{"nodes":[`+strings.Join(nodes, ",")+`]}`)
				return
			}
			var locks []string
			for n := range 3 {
				client := ""
				if n == named {
					client = fmt.Sprintf(`,"client":"client %d","link":"link","remote":"10.0.0.%d:1"`, n, n)
				}
				locks = append(locks, fmt.Sprintf(`{"sequenceNumber":%d,"token":"aa"%s}`, n, client))
			}
			_, _ = io.WriteString(w, `{"locks":[`+strings.Join(locks, ",")+`],"next":""}`)
		}))
		t.Cleanup(s.Close)
		nodes = append(nodes, fmt.Sprintf(`{"id":"n%d","operations":%q}`, named, strings.TrimPrefix(s.URL, "http://")))
		return s
	}
	first := serve(0)
	serve(1)
	nodes = append(nodes, fmt.Sprintf(`{"id":"gone","operations":%q}`, strings.TrimPrefix(silent.URL, "http://")))
	silent.Close()
	out, code := execute(t, NewQueueCommand(), "", "locks", "orders", "--connection-string", cs, "--ops", first.URL, "--json")
	for _, want := range []string{`0,"token":"aa","client":"client 0"`, `1,"token":"aa","client":"client 1"`,
		`{"sequenceNumber":2,"token":"aa"}`, "gone ("} {
		if code != 0 || strings.Count(out, want) != 1 {
			t.Errorf("no %q in (%d)\n%s", want, code, out)
		}
	}
}
