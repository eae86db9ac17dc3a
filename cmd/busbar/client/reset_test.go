package client

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// A reset empties the broker that --context or --connection-string names, and no other one that a context names.
func TestAResetIsOfTheBrokerThatIsNamed(t *testing.T) {
	emptied := ""
	serve := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			emptied += name
			_, _ = io.WriteString(w, `{"entities":1}`)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	const cs = "Endpoint=sb://h;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
	file := filepath.Join(t.TempDir(), "contexts.yaml")
	text := fmt.Sprintf("current: a\ncontexts:\n  a: {connection-string: %q, ops: %q}\n  b: {connection-string: %q, ops: %q}\n",
		cs, serve("a"), cs, serve("b"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BUSBAR_CONTEXTS", file)
	t.Setenv("BUSBAR_CONTEXT", "")
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "")
	t.Setenv("BUSBAR_OPS", "")
	own := serve("own")
	for _, step := range []struct {
		ops, want string
		args      []string
	}{
		{"", "a", nil},
		{"", "b", []string{"--context", "b"}},
		{own, "own", []string{"--connection-string", cs}},
	} {
		t.Setenv("BUSBAR_OPS", step.ops)
		emptied = ""
		out, code := execute(t, NewResetCommand(), "", append(step.args, "--yes")...)
		if code != 0 || emptied != step.want {
			t.Errorf("reset %v empties %q, want %q: %d %s", step.args, emptied, step.want, code, out)
		}
	}
}
