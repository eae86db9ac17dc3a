package rest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// The refusals and failures of other rooms, as clients are told them.
func TestErrorsOfOtherRooms(t *testing.T) {
	refused := func(r fsm.Refusal) error { return &fsm.RefusedError{Refusal: r, Detail: "why"} }
	for name, tc := range map[string]struct {
		err    error
		status int
		text   string
	}{
		"quota":     {refused(fsm.QuotaExceeded), 403, "SubCode=40300. Forbidden."},
		"argument":  {refused(fsm.InvalidArgument), 400, "SubCode=40000. Bad Request. why."},
		"operation": {refused(fsm.InvalidOperation), 403, "SubCode=40301. Forbidden."},
		"exists":    {fmt.Errorf("create: %w", refused(fsm.EntityExists)), 409, "SubCode=40900."},
		"suspended": {refused(fsm.Unauthorized), 401, "SubCode=40100. Unauthorized: why."}, // S-256
		"stale":     {refused(fsm.Stale), 409, "SubCode=40901. Another conflicting operation"},
		"not ready": {refused(fsm.Busy), 503, "SubCode=50004."},
		"strange":   {refused(fsm.SessionLockLost), 500, "SubCode=50000."},
		"busy":      {fsm.ErrBusy, 503, "SubCode=50004."},
		"leader":    {fmt.Errorf("x: %w", fsm.ErrNotLeader), 503, "SubCode=50004."},
		"silent":    {fsm.ErrUnavailable, 503, "SubCode=50004."},
		"closing":   {fsm.ErrClosed, 503, "SubCode=50004."},
		"unknown":   {fsm.ErrUnknown, 503, "may or may not have been done"},
		"version": {fmt.Errorf("x: %w", &fsm.VersionError{What: "Rehome", Needs: fsm.NewestVersion, Has: fsm.VersionPlacement}), 503,
			"Rehome needs cluster version " + fsm.NewestVersion.String() + ", and the cluster has 0.0-1: run release 0.1 or later " +
				"on every node, then busbar cluster upgrade finalize."},
		"new cluster": {&fsm.VersionError{What: "Rehome", Needs: fsm.NewestVersion}, 503,
			"the cluster is new, and has no version before every node has told its program."},
		"internal": {errors.New("secret path"), 500, "SubCode=50000."},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.failure = tc.err
			for _, request := range [][]string{
				{"PUT", "/q"}, {"PUT", "/q", "If-Match", "*"}, {"GET", "/q"}, {"DELETE", "/q"},
				{"GET", "/$Resources/Queues"},
			} {
				status, text := h.do(t, request[0], request[1], queueBody(""), request[2:]...)
				if status != tc.status || !strings.Contains(text, tc.text) {
					t.Errorf("%v: got %d %s", request, status, text)
				}
				if strings.Contains(text, "secret") {
					t.Errorf("an internal error is told: %s", text)
				}
			}
			if tc.status == 500 && !strings.Contains(h.log.String(), tc.err.Error()) {
				t.Errorf("nothing is logged of it: %s", h.log.String())
			}
		})
	}
}

func TestCountersThatAreNotComplete(t *testing.T) {
	h := newHouse(t)
	h.create(t, "q", "")
	h.incomplete = true
	for target, want := range map[string]int{
		"/q": 200, "/q?enrich=False": 200, "/q?enrich=True": 503, "/q?ENRICH=true": 503,
		"/$Resources/Queues": 200, "/$Resources/Queues?enrich=true": 503,
	} {
		response := h.response(t, "GET", target, "")
		if response.StatusCode != want {
			t.Errorf("GET %s: %d", target, response.StatusCode)
		}
		if want == 503 && response.Header.Get("Retry-After") == "" {
			t.Errorf("GET %s: nothing says when to try again", target)
		}
	}
	if _, text := h.do(t, "GET", "/q", ""); strings.Contains(text, "MessageCount") ||
		strings.Contains(text, "SizeInBytes") {
		t.Errorf("counters are told that nobody knows: %s", text)
	}
}

// RUL-8, RUL-9: limits that an operator may move.
func TestConfiguredLimits(t *testing.T) {
	h := newHouse(t, func(c *Config) {
		c.MaxLockDuration, c.MaxMessageBytes, c.LiftLimits = time.Hour, 4<<20, true
	})
	d := h.create(t, "q",
		"<LockDuration>PT1H</LockDuration><MaxSizeInMegabytes>1</MaxSizeInMegabytes>"+
			"<DuplicateDetectionHistoryTimeWindow>PT5S</DuplicateDetectionHistoryTimeWindow>")
	if d.LockDuration != 3_600_000 || d.DuplicateWindow != 5000 || d.MaxSizeBytes != 1<<20 || d.MaxMessageBytes != 4<<20 {
		t.Errorf("got %+v", d)
	}
	status, text := h.do(t, "PUT", "/r", queueBody("<LockDuration>PT61M</LockDuration>"))
	if status != 400 || !strings.Contains(text, "maximum of '60' minutes") {
		t.Errorf("got %d %s", status, text)
	}
	for name, change := range map[string]func(*Config){
		"no name":         func(c *Config) { c.Namespace = "" },
		"no message":      func(c *Config) { c.MaxMessageBytes = 0 },
		"101 MiB":         func(c *Config) { c.MaxMessageBytes = 101 << 20 },
		"a short lock":    func(c *Config) { c.MaxLockDuration = time.Second },
		"a lock of days":  func(c *Config) { c.MaxLockDuration = 25 * time.Hour },
		"a small queue":   func(c *Config) { c.MaxSizeMegabytes = 1 },
		"no time":         func(c *Config) { c.RequestTimeout = 0 },
		"no request":      func(c *Config) { c.MaxRequests = 0 },
		"nothing at all":  func(c *Config) { *c = Config{} },
		"negative number": func(c *Config) { c.MaxRequests = -1 },
	} {
		cfg := Defaults()
		change(&cfg)
		if _, err := New(cfg, h.api.deps, h.api.log); err == nil {
			t.Errorf("New accepted %s", name)
		}
	}
	err := (&Config{}).Validate()
	for _, want := range []string{"no name", "tier", "message size", "longest lock", "largest queue", "request timeout",
		"at a time"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the empty configuration: %q is missing in %v", want, err)
		}
	}
	if _, err := New(Defaults(), Deps{}, h.api.log); err == nil {
		t.Error("New accepted missing dependencies")
	}
}
