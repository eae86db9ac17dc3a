package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// resetPath is where a test suite empties a development node.
const resetPath = "/api/reset"

// resetTimeout bounds one reset: each entity takes a few commits.
const resetTimeout = 5 * time.Minute

// withReset lets a test suite empty all entities by POST /api/reset. Only --dev has it: there
// is no way back. opsGuard asks for a token, unless the request comes from the same host.
func (n *node) withReset(next http.Handler) http.Handler {
	if !n.cfg.Dev {
		return next
	}
	// A page in a developer's browser can reach the loopback interface: it must not command.
	reset := http.NewCrossOriginProtection().Handler(http.HandlerFunc(n.serveReset))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == resetPath && r.Method == http.MethodPost {
			reset.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (n *node) serveReset(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(resetTimeout + time.Minute))
	ctx, cancel := context.WithTimeout(r.Context(), resetTimeout)
	defer cancel()
	count, err := n.reset(ctx)
	audit.Of(r.Context()).Count("entities", uint64(count))
	status, answer := http.StatusOK, map[string]any{"status": "reset", "entities": count}
	if err != nil {
		n.log.Error("reset", "error", err)
		status, answer = http.StatusServiceUnavailable, map[string]any{"error": err.Error(), "entities": count}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
}

// reset replaces every queue and topic by a new one of the same description. Messages, dead letters, sessions, states
// and duplicate ids are gone, and numbers begin at 1. Open links end, as after any deletion (S-259). An entity that
// forwards finds its target, because only one is away at a time.
func (n *node) reset(ctx context.Context) (count int, err error) {
	for _, kind := range []fsm.EntityKind{fsm.Queue, fsm.Topic} {
		all, err := n.directory.List(ctx, kind, 0, -1)
		if err != nil {
			return count, err
		}
		for _, d := range all {
			var below []*fsm.Descriptor
			if kind == fsm.Topic {
				if below, err = n.directory.Subscriptions(ctx, d, 0, -1); err != nil {
					return count, err
				}
			}
			if err := n.replace(ctx, d, below); err != nil {
				return count, fmt.Errorf("reset %s: %w", d.Name, err)
			}
			count += 1 + len(below)
		}
	}
	return count, nil
}

func (n *node) replace(ctx context.Context, d *fsm.Descriptor, below []*fsm.Descriptor) error {
	for _, e := range append([]*fsm.Descriptor{d}, below...) {
		if !e.Suspended {
			continue
		}
		if _, err := n.directory.Suspend(ctx, e.ID, fsm.Active); err != nil {
			return err
		}
	}
	if err := n.directory.Delete(ctx, d.Name); err != nil {
		return err
	}
	for _, e := range append([]*fsm.Descriptor{d}, below...) {
		if _, err := n.directory.Create(ctx, *e); err != nil {
			return err
		}
	}
	return nil
}
