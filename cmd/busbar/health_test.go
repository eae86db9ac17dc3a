package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/doctor"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// askHealth asks a node for the health of its cluster, later than its last answer is given again.
func askHealth(t *testing.T, l *liveNode) (h client.ClusterHealth, text string) {
	t.Helper()
	l.health.turn <- struct{}{}
	l.health.last = nil
	<-l.health.turn
	res, text := l.requestTo(t, l.opsHost(), "GET", client.HealthPath, "", "none")
	if res.StatusCode != 200 {
		t.Fatalf("health: %d %s", res.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatal(err)
	}
	return h, text
}

func findingOf(h client.ClusterHealth, code string) *doctor.Finding {
	if i := slices.IndexFunc(h.Findings, func(x doctor.Finding) bool { return x.Code == code }); i >= 0 {
		return &h.Findings[i]
	}
	return nil
}

// A node tells what it is and what is wrong, without a token, and nothing of its secrets.
func TestTheHealthOfALiveCluster(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	h, text := askHealth(t, l)
	if h.Status != client.Healthy || h.Node != "n1" || len(h.Nodes) != 1 {
		t.Fatalf("got %s", text)
	}
	n := h.Nodes[0]
	if n.ID != "n1" || n.State != "alive" || n.Version != version || n.UptimeMillis <= 0 || n.DiskTotal == 0 || n.Certificate == nil ||
		!n.Certificate.Expires.After(time.Now()) {
		t.Errorf("of the node: %s", text)
	}
	if strings.Contains(text, doctor.SecretPrefix) || strings.Contains(text, "settings") {
		t.Errorf("settings are told to everybody: %s", text)
	}
	if res, _ := l.requestTo(t, l.opsHost(), "POST", client.HealthPath, "", "none"); res.StatusCode != 405 || res.Header.Get("Allow") != "GET" {
		t.Errorf("a POST: %d", res.StatusCode)
	}

	// A node that the catalog knows and nobody hears of.
	gone := catalog.Node{ID: "11111111-2222-3333-4444-555555555555", Name: "n9", Incarnation: 1}
	request := fsm.Request{ID: fsm.RequestID{Node: l.incarnation, Pump: 1 << 40, Counter: 1},
		Command: (&catalog.Change{Node: &gone, Program: fsm.NewestVersion}).Command()}
	if o, err := l.node.host.Replica(fsm.CatalogPartition).Propose(t.Context(), request); err != nil || o.Refusal != fsm.None {
		t.Fatalf("%+v, %v", o, err)
	}
	h, text = askHealth(t, l)
	if x := findingOf(h, doctor.CodeUnreachable); x == nil || x.Says != "node n9 is away and holds nothing." || h.Status != client.Healthy {
		t.Errorf("with a node that is away: %s", text)
	}

	// The check of another node's name fails here.
	owner := fsm.NodeID("somebody")
	l.nameOwner.Store(&owner)
	for range alarmPatience {
		l.alarms.step()
	}
	h, text = askHealth(t, l)
	if x := findingOf(h, doctor.CodeCheck); x == nil || x.Node != "n1" || !strings.Contains(x.Says, "node-name") || h.Status != client.Unhealthy {
		t.Errorf("with an alarm: %s", text)
	}
}

// What a node says of its certificates and settings is what the rules look at.
func TestWhatANodeSaysOfItself(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	newAuthority(t, "ours").issue(t, dir, paper{}) // of another name than the node has
	cfg := nodeConfig(t, func(c *Config) {
		c.Advertise, c.TLSCert, c.TLSKey = "a.example.net", filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key")
	})
	l := openLive(t, cfg)
	says := l.says(t.Context(), now)
	if says.Certificate == nil || !slices.Contains(says.Certificate.Unnamed, "a.example.net") {
		t.Errorf("certificate %+v", says.Certificate)
	}
	later := l.says(t.Context(), now.Add(100*365*24*time.Hour))
	if later.Certificate.Fault == "" || later.UptimeMillis < (24*time.Hour).Milliseconds() {
		t.Errorf("in a hundred years: %+v", later.Certificate)
	}
	other := cfg
	other.Tier, other.RootKey = "standard", "another"
	other.Policies = []policy{{Name: devKeyName, Primary: "another"}}
	a, b := sharedSettings(&cfg), sharedSettings(&other)
	for name, value := range a {
		if differs := name == "tier" || name == "root-key" || name == "policies"; (b[name] != value) != differs {
			t.Errorf("%s: %q and %q", name, value, b[name])
		}
		if strings.Contains(value, devKey) {
			t.Errorf("%s shows the key", name)
		}
	}
	if _, err := os.Stat(cfg.DataDir); err != nil || says.DiskTotal == 0 || says.DiskFree > says.DiskTotal {
		t.Errorf("disk: %d of %d, %v", says.DiskFree, says.DiskTotal, err)
	}
}

// The reason why a node does not answer has neither its id nor the text of fsm.ErrUnavailable.
func TestWhyANodeIsSilent(t *testing.T) {
	dial := errors.New("dial 127.0.0.1:1: connection refused")
	for _, err := range []error{dial, fmt.Errorf("%w: node %s: %w", fsm.ErrUnavailable, "n-1", dial)} {
		if got := silence(err, "n-1"); got != dial.Error() {
			t.Errorf("%v is told as %q", err, got)
		}
	}
}
