package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// serveCommand carries out what an operator commands the cluster. The answer to a wish does not wait for the work.
func (a *API) serveCommand(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := a.timeout(r)
	defer cancel()
	node := fsm.NodeID(r.URL.Query().Get("node"))
	switch verb := strings.TrimPrefix(r.URL.Path, ClusterCommands); verb {
	case "transfer-leader":
		a.serveTransfer(ctx, w, r)
	case "drain", "undrain", "remove", "forget":
		if node == "" {
			writeJSON(w, r, http.StatusBadRequest, map[string]string{"error": "want node=NODE in the query"})
			return
		}
		if err := a.deps.Cluster.Wish(ctx, verb, node); err != nil {
			a.refuseCommand(w, r, err)
			return
		}
		a.log.Info("an operator wants of a node", "verb", verb, "peer", node)
		writeJSON(w, r, http.StatusOK, map[string]string{"status": "wanted", "node": string(node), "verb": verb})
	case "rebalance":
		moved, stay, err := a.deps.Cluster.Rebalance(ctx, node)
		if err != nil {
			a.refuseCommand(w, r, err)
			return
		}
		audit.Of(ctx).Count("leaderships", uint64(moved))
		a.log.Info("leaderships were handed to the preferred leaders", "handed over", moved, "stay", len(stay))
		writeJSON(w, r, http.StatusOK, rebalanced{Moved: moved, Stay: stay})
	case "rehome":
		a.serveRehome(ctx, w, r)
	case "upgrade/finalize":
		upgrade, err := a.deps.Cluster.Finalize(ctx)
		if err != nil {
			a.refuseCommand(w, r, err)
			return
		}
		audit.Of(ctx).Result("clusterVersion", upgrade.Version)
		a.log.Info("an operator finalized an upgrade", "cluster version", upgrade.Version)
		writeJSON(w, r, http.StatusOK, upgrade)
	default:
		writeJSON(w, r, http.StatusNotFound, map[string]string{"error": "there is no command " + strconv.Quote(verb)})
	}
}

// serveRehome begins to move the shares of a queue. Its answer does not wait for the end.
func (a *API) serveRehome(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	entity, dry, to := values.Get("entity"), false, uint64(0)
	var err, err2 error
	if values.Has("to") {
		to, err = strconv.ParseUint(values.Get("to"), 10, 15) // A1: below 32768
	}
	if values.Has("dry-run") {
		dry, err2 = strconv.ParseBool(values.Get("dry-run"))
	}
	if entity == "" || err != nil || err2 != nil || values.Has("to") && to == 0 {
		writeJSON(w, r, http.StatusBadRequest,
			map[string]string{"error": "want entity=NAME in the query, and perhaps to=PARTITION and dry-run=true"})
		return
	}
	moves, err := a.deps.Cluster.Rehome(ctx, entity, fsm.PartitionID(to), dry)
	if err != nil {
		a.refuseCommand(w, r, err)
		return
	}
	audit.Of(ctx).Count("shares", uint64(len(moves)))
	if !dry {
		a.log.Info("shares of a queue move to other partitions", "entity", entity, "shares", len(moves))
	}
	writeJSON(w, r, http.StatusOK, map[string]any{"entity": entity, "moves": moves, "dryRun": dry})
}

type rebalanced struct {
	Moved int      `json:"moved"`
	Stay  []string `json:"stay,omitempty"` // a sentence for each leadership that was not handed over
}

// refuseCommand answers with the error of a command: 404 for a node that is not known, 503 if it may work later.
func (a *API) refuseCommand(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusConflict
	switch {
	case errors.Is(err, fsm.ErrNoEntity):
		status = http.StatusNotFound
	case asProblem(err).status == http.StatusServiceUnavailable:
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, r, status, map[string]string{"error": err.Error()})
}

func (a *API) serveTransfer(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	partition, err := strconv.ParseUint(values.Get("partition"), 10, 15) // A1: below 32768
	to := values.Get("to")
	if err != nil || to == "" {
		writeJSON(w, r, http.StatusBadRequest,
			map[string]string{"error": "want partition=N&to=NODE in the query"})
		return
	}
	if err := a.deps.Cluster.TransferLeader(ctx, fsm.PartitionID(partition), fsm.NodeID(to)); err != nil {
		a.refuseCommand(w, r, err)
		return
	}
	a.log.Info("leadership transferred", "partition", partition, "to", to)
	writeJSON(w, r, http.StatusOK, map[string]string{"status": "transferred"})
}
