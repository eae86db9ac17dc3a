package rest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/fsm"
)

func newOperations(t *testing.T) *house {
	t.Helper()
	h := newHouse(t)
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "busbar_sample"})
	gauge.Set(7)
	if err := registry.Register(gauge); err != nil {
		t.Fatal(err)
	}
	h.api.deps.Metrics = registry
	h.handler = h.api.Operations()
	return h
}

func TestOperationsNeedNoToken(t *testing.T) {
	h := newOperations(t)
	for target, want := range map[string]string{
		"/health":  `{"status":"healthy","message":"Service is healthy."}`,
		"/livez":   `{"status":"alive"}`,
		"/readyz":  `{"status":"ready"}`,
		"/metrics": "busbar_sample 7\n",
		"/api/cluster": `"state":"alive","address":"127.0.0.1:5672"}],` +
			`"partitions":[{"id":1,"leader":"a","term":2,"replicas":["a"],"applied":7}],` +
			`"entities":[{"name":"q","shares":[1]}]}`,
	} {
		status, text := h.do(t, "GET", target, "", "Authorization", "")
		if status != 200 || (text != want && !strings.HasSuffix(text, want)) {
			t.Errorf("%s: %d %s", target, status, text)
		}
		if status, text = h.do(t, "HEAD", target, "", "Authorization", ""); status != 200 {
			t.Errorf("HEAD %s: %d %s", target, status, text)
		}
	}
}

func TestAnUnreadyNodeIsAliveAndSaysWhy(t *testing.T) {
	h := newOperations(t)
	h.ready = errors.New("partition 3 has no leader")
	for target, want := range map[string]string{
		"/health": `503 {"status":"unhealthy","message":"Service is unhealthy."}`,
		"/livez":  `200 {"status":"alive"}`,
		"/readyz": `503 {"reason":"partition 3 has no leader","status":"not ready"}`,
	} {
		status, text := h.do(t, "GET", target, "")
		if got := fmt.Sprint(status, " ", text); got != want {
			t.Errorf("%s: got %s, want %s", target, got, want)
		}
	}
}

// An alarm is told, and turns nobody away.
func TestChecksHaveNames(t *testing.T) {
	h := newOperations(t)
	disk := `{"name":"disk-space","status":"failing","readiness":false,"reason":"disk is nearly full"}`
	well := `{"name":"leaders","status":"ok","readiness":true}`
	ill := `{"name":"leaders","status":"failing","readiness":true,"reason":"partition 3 has no leader"}`
	check := func(target, want string) {
		t.Helper()
		status, text := h.do(t, "GET", target, "", "Authorization", "")
		if got := fmt.Sprint(status, " ", text); got != want {
			t.Errorf("%s: got %s, want %s", target, got, want)
		}
	}
	check("/readyz?verbose", `200 {"checks":[`+well+`,`+disk+`],"status":"ready"}`)
	check("/api/health/checks", `200 {"checks":[`+well+`,`+disk+`]}`)
	check("/api/health/checks/leaders", `200 `+well)
	check("/api/health/checks/disk-space", `503 `+disk)
	check("/api/health/checks/nosuch", `404 {"error":"there is no check of that name; there are leaders, disk-space"}`)
	h.ready = errors.New("partition 3 has no leader")
	check("/readyz?verbose", `503 {"checks":[`+ill+`,`+disk+`],"reason":"partition 3 has no leader","status":"not ready"}`)
	check("/api/health/checks/leaders", `503 `+ill)
}

func TestOperationsServeManagementWithATokenOnly(t *testing.T) {
	h := newOperations(t)
	h.create(t, "q", "")
	if status, text := h.do(t, "GET", "/q", ""); status != 200 || !strings.Contains(text, "<entry") {
		t.Errorf("got %d %s", status, text)
	}
	for _, target := range []string{
		"/q", "/health/", "/api/cluster/x", "/api", "/metrics/x", "/debug/pprof/",
	} {
		if status, _ := h.do(t, "GET", target, "", "Authorization", ""); status != 401 {
			t.Errorf("%s: got %d", target, status)
		}
	}
	h.handler = h.api.Management()
	for _, target := range []string{"/health", "/livez", "/readyz", "/metrics", "/api/cluster"} {
		if status, _ := h.do(t, "GET", target, "", "Authorization", ""); status != 401 {
			t.Errorf("the messaging port answers %s with %d", target, status)
		}
	}
}

func TestTransferLeader(t *testing.T) {
	const path = ClusterCommands + "transfer-leader"
	h := newOperations(t)
	for target, want := range map[string]int{
		path + "?partition=3&to=b":     200,
		path:                           400,
		path + "?partition=3":          400,
		path + "?to=b":                 400,
		path + "?partition=-1&to=b":    400,
		path + "?partition=32768&to=b": 400,
		path + "?partition=x&to=b":     400,
	} {
		if status, text := h.do(t, "POST", target, ""); status != want {
			t.Errorf("%s: got %d %s", target, status, text)
		}
	}
	if got := strings.Join(h.transfers, "; "); got != "3 to b" {
		t.Errorf("transferred %s", got)
	}
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"nobody leads":   {fsm.ErrUnavailable, 503},
		"a strange node": {errors.New("node b holds no replica"), 409},
		"no partition":   {fmt.Errorf("partition 9: %w", fsm.ErrNoEntity), 404},
	} {
		h.transfer = tc.err
		status, text := h.do(t, "POST", path+"?partition=3&to=b", "")
		if status != tc.want || !strings.Contains(text, tc.err.Error()) {
			t.Errorf("%s: got %d %s", name, status, text)
		}
	}
	h.transfer, h.transfers = nil, nil
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.test"}, {"Origin", "null"},
	} {
		if status, _ := h.do(t, "POST", path+"?partition=3&to=b", "", headers...); status != 403 {
			t.Errorf("%v: got %d", headers, status)
		}
	}
	if status, _ := h.do(t, "GET", path+"?partition=3&to=b", "", "Authorization", ""); status != 401 {
		t.Errorf("GET: got %d", status)
	}
	if len(h.transfers) != 0 {
		t.Errorf("a page in a browser commanded %v", h.transfers)
	}
}

func TestOperatorsSayWhatTheyWantOfANode(t *testing.T) {
	h := newOperations(t)
	for _, tc := range []struct {
		method, path string
		fails        error
		status       int
		want         string
	}{
		{"POST", "drain?node=b", nil, 200, `"verb":"drain"`},
		{"POST", "undrain?node=b", nil, 200, `"verb":"undrain"`},
		{"POST", "remove?node=b", nil, 200, `"verb":"remove"`},
		{"POST", "forget?node=b", nil, 200, `"verb":"forget"`},
		{"POST", "rebalance", nil, 200, `{"moved":2,"stay":["partition 3 was not handed to b"]}`},
		{"GET", "upgrade", nil, 200, `{"version":"0.0-1","knows":"0.1-1","next":"0.1-1","nodes":[{"id":"n1","uuid":"a"}]}`},
		{"POST", "upgrade", nil, 404, "there is no command"},
		{"POST", "upgrade/finalize", nil, 200, `{"version":"0.1-1","knows":"0.1-1","nodes":null}`},
		{"POST", "upgrade/finalize", errors.New("the cluster version was not raised: node x"), 409, "node x"},
		{"POST", "upgrade/finalize", &fsm.VersionError{What: "it", Needs: 101}, 503, "it needs cluster version 0.1-1"},
		{"POST", "rebalance?node=b", nil, 200, `"moved":2`},
		{"POST", "rehome?entity=orders", nil, 200, `{"dryRun":false,"entity":"orders","moves":[{"share":0,"from":2,"to":1}]}`},
		{"POST", "rehome?entity=orders&to=7&dry-run=true", nil, 200, `"to":7`},
		{"POST", "rehome", nil, 400, "want entity=NAME"},
		{"POST", "rehome?entity=orders&to=0", nil, 400, "want entity=NAME"},
		{"POST", "rehome?entity=orders&dry-run=perhaps", nil, 400, "want entity=NAME"},
		{"POST", "rehome?entity=x", fmt.Errorf("entity x: %w", fsm.ErrNoEntity), 404, "entity x"},
		{"POST", "drain", nil, 400, "node=NODE"},
		{"POST", "dance?node=b", nil, 404, "dance"},
		{"POST", "drain?node=x", fmt.Errorf("node x: %w", fsm.ErrNoEntity), 404, "node x"},
		{"POST", "drain?node=b", fmt.Errorf("node c is too old: %w", fsm.ErrUnavailable), 503, "node c is too old"},
		{"POST", "forget?node=b", errors.New("node b answers"), 409, "node b answers"},
		{"POST", "rebalance?node=x", fmt.Errorf("node x: %w", fsm.ErrNoEntity), 404, "node x"},
	} {
		h.transfer = tc.fails
		if status, text := h.do(t, tc.method, ClusterCommands+tc.path, ""); status != tc.status ||
			!strings.Contains(text, tc.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tc.method, tc.path, status, text, tc.status, tc.want)
		}
	}
	const want = "drain b; undrain b; remove b; forget b; rebalance ; finalize; rebalance b; rehome orders 0 false; rehome orders 7 true"
	if got := strings.Join(h.transfers, "; "); got != want {
		t.Errorf("commanded %q, want %q", got, want)
	}
	h.transfer, h.transfers = nil, nil
	status, _ := h.do(t, "POST", ClusterCommands+"drain?node=b", "", "Origin", "http://evil.example",
		"Sec-Fetch-Site", "cross-site")
	if status != 403 || len(h.transfers) != 0 {
		t.Errorf("a page in a browser: %d, commanded %v", status, h.transfers)
	}
}
