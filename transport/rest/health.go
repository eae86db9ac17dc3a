package rest

import (
	"net/http"
	"strings"
)

// Check is one thing that a node looks at in itself.
type Check struct {
	Name string `json:"name"`
	// Status is "ok" or "failing".
	Status string `json:"status"`
	// Readiness says that the node gets no new clients while the check fails; it is false for an alarm.
	Readiness bool `json:"readiness"`
	// Reason is why the check fails.
	Reason string `json:"reason,omitempty"`
}

// The status of a check.
const (
	CheckOK      = "ok"
	CheckFailing = "failing"
)

// Alarm is a fault of which an operator should hear.
type Alarm struct {
	Name   string `json:"name"` // of the check
	Reason string `json:"reason"`
}

const (
	checksPath  = "/api/health/checks"
	checkPrefix = checksPath + "/"
)

// serveHealth answers as the official emulator does: containers wait for these texts.
func (a *API) serveHealth(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := a.timeout(r)
	defer cancel()
	if err := a.deps.Cluster.Ready(ctx); err != nil {
		writeJSON(w, r, http.StatusServiceUnavailable, health{"unhealthy", "Service is unhealthy."})
		return
	}
	writeJSON(w, r, http.StatusOK, health{"healthy", "Service is healthy."})
}

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// serveReady answers a probe, and with ?verbose lists all checks, alarms among them.
func (a *API) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := a.timeout(r)
	defer cancel()
	status, answer := http.StatusOK, map[string]any{"status": "ready"}
	if err := a.deps.Cluster.Ready(ctx); err != nil {
		status, answer = http.StatusServiceUnavailable, map[string]any{"status": "not ready", "reason": err.Error()}
	}
	if r.URL.Query().Has("verbose") {
		answer["checks"] = a.deps.Cluster.Checks(ctx)
	}
	writeJSON(w, r, status, answer)
}

// serveChecks lists all checks, or answers with one: 200 if all is well, 503 if it fails.
func (a *API) serveChecks(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := a.timeout(r)
	defer cancel()
	checks := a.deps.Cluster.Checks(ctx)
	if r.URL.Path == checksPath {
		writeJSON(w, r, http.StatusOK, map[string]any{"checks": checks})
		return
	}
	name := strings.TrimPrefix(r.URL.Path, checkPrefix)
	names := make([]string, 0, len(checks))
	for _, c := range checks {
		if c.Name == name {
			status := http.StatusOK
			if c.Status != CheckOK {
				status = http.StatusServiceUnavailable
			}
			writeJSON(w, r, status, c)
			return
		}
		names = append(names, c.Name)
	}
	writeJSON(w, r, http.StatusNotFound, map[string]string{
		"error": "there is no check of that name; there are " + strings.Join(names, ", ")})
}
