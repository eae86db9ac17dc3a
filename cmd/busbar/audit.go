package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
)

// auditor is what the operations port needs of the partitions.
type auditor interface {
	AuditGroup(ctx context.Context, p fsm.PartitionID) partition.GroupAudit
}

// withAudit adds the audit of one partition to the operations port. It is a command, not a look: it takes the
// memory of a second state per replica, and reads every body. A large partition takes minutes, so
// it ends with the request, not with a time-out of the port.
func withAudit(next http.Handler, a auditor) http.Handler {
	serve := http.NewCrossOriginProtection().Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			p, err := strconv.ParseUint(r.URL.Query().Get("partition"), 10, 15) // A1: below 32768
			if err != nil {
				answerJSON(w, http.StatusBadRequest, map[string]string{"error": "want partition=N in the query"})
				return
			}
			answerJSON(w, http.StatusOK, a.AuditGroup(r.Context(), fsm.PartitionID(p)))
		}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != client.AuditPath:
			next.ServeHTTP(w, r)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			answerJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "want POST"})
		default:
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // none
			serve.ServeHTTP(w, r)
		}
	})
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(fmt.Sprintf("{%q:%q}", "error", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client has gone: nobody is left to tell
}
