package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/rest"
)

const (
	restoresPath = "/api/restores"
	// maxRestores bounds the restores that this node has in memory.
	maxRestores = 4
	// restoreLife is how long a restore is remembered that nobody goes on with.
	restoreLife = time.Hour
	// restoreTimeout bounds the beginning and the end of a restore: some commits for each entity.
	restoreTimeout = 15 * time.Minute
	// maxCatalogBytes bounds the description of all entities: 100,000 of them with some kilobytes each.
	maxCatalogBytes = 512 << 20
	// progressEvery is how often a restore tells how far a share is.
	progressEvery = time.Second
)

// restores are those that this node coordinates.
type restores struct {
	directory *partition.Directory
	counts    func(context.Context, *fsm.Descriptor) (fsm.EntityCounts, bool, error)
	mu        sync.Mutex
	open      map[string]*openRestore
	beginning int
}

type openRestore struct {
	*partition.Restoring
	id     string
	expiry *time.Timer
	mu     sync.Mutex // one request at a time
	done   map[fsm.PartitionID]bool
}

// begun is the answer to the beginning of a restore.
type begun struct {
	ID         string            `json:"id"` // empty for a dry run
	Partitions []fsm.PartitionID `json:"partitions"`
	Entities   []string          `json:"entities"`
}

func (s *restores) begin(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	dry, err := strconv.ParseBool(values.Get("dry-run"))
	if values.Has("dry-run") && err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "dry-run is true or false"})
		return
	}
	if as := values.Get("as"); as != "" {
		if err := rest.CheckName(as); err != nil { // nobody could show or delete it
			answerJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(restoreTimeout))
	_ = control.SetWriteDeadline(time.Now().Add(restoreTimeout + time.Minute))
	var from partition.BackedUpEntities
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCatalogBytes)).Decode(&from); err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "entities of a backup: " + err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), restoreTimeout)
	defer cancel()
	if !s.reserve() {
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": fmt.Sprintf(
			"%d restores are under way at this node, the maximum: finish one, or resume and delete the entities that it made", maxRestores)})
		return
	}
	defer s.unreserve()
	made, err := s.directory.BeginRestore(ctx, from, partition.RestoreOptions{Entity: values.Get("entity"),
		As: values.Get("as"), DryRun: dry})
	if err != nil {
		refuseBackup(w, err)
		return
	}
	answer := begun{Partitions: made.Partitions, Entities: []string{}}
	if made.Partitions == nil {
		answer.Partitions = []fsm.PartitionID{}
	}
	for _, e := range made.Entities {
		answer.Entities = append(answer.Entities, e.Name)
	}
	if !dry {
		answer.ID = strconv.FormatUint(rand.Uint64()|1, 16)
		one := &openRestore{Restoring: made, id: answer.ID, done: map[fsm.PartitionID]bool{}}
		s.mu.Lock()
		one.expiry = time.AfterFunc(restoreLife, func() { s.forget(answer.ID) })
		s.open[answer.ID] = one
		s.mu.Unlock()
	}
	entry := audit.Of(r.Context())
	entry.Result("id", answer.ID)
	entry.Count("entities", uint64(len(answer.Entities)))
	answerJSON(w, http.StatusOK, answer)
}

// reserve takes a place for a restore that begins. A restore whose entities were all deleted gives its place up.
func (s *restores) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.directory.View(); v != nil && len(s.open)+s.beginning >= maxRestores {
		for id, one := range s.open { // order-free: each for itself
			if !slices.ContainsFunc(one.Entities, func(e *fsm.Descriptor) bool { return v.ByID(e.ID) != nil }) {
				one.expiry.Stop()
				delete(s.open, id)
			}
		}
	}
	if len(s.open)+s.beginning >= maxRestores {
		return false
	}
	s.beginning++
	return true
}

func (s *restores) unreserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginning--
}

func (s *restores) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// find returns the restore that a request names. It answers 404 itself.
func (s *restores) find(w http.ResponseWriter, r *http.Request) *openRestore {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.open[r.PathValue("id")]
	if one == nil {
		answerJSON(w, http.StatusNotFound, map[string]string{"error": "this node has no such restore. If the node has " +
			"started again, resume and delete the entities that the restore made, and begin it anew"})
		return nil
	}
	one.expiry.Reset(restoreLife)
	return one
}

// image restores the image of one partition. The answer is a line for each step, so its status tells nothing of the end.
func (s *restores) image(w http.ResponseWriter, r *http.Request) {
	one := s.find(w, r)
	if one == nil {
		return
	}
	p, err := strconv.ParseUint(r.PathValue("partition"), 10, 15)
	if err != nil || !slices.Contains(one.Partitions, fsm.PartitionID(p)) {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": fmt.Sprintf("the restore wants the images of the "+
			"partitions %v", one.Partitions)})
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.done[fsm.PartitionID(p)] { // it came before. The shares may be ordinary ones by now, and take no image
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // none
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			answerJSON(w, http.StatusOK, map[string]bool{"done": true})
		}
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})  // none
	_ = control.SetWriteDeadline(time.Time{}) // none
	_ = control.EnableFullDuplex()            // lines go out while the image comes in
	w.Header().Set("Content-Type", "application/jsonl")
	out := &lines{w, control}
	var last time.Time
	err = s.directory.RestoreImage(r.Context(), one.Restoring, fsm.PartitionID(p), r.Body, storage.EachBody,
		func(at partition.Progress) {
			if at.Restored == at.Total || time.Since(last) >= progressEvery {
				last = time.Now()
				one.expiry.Reset(restoreLife)
				out.say(at)
			}
		})
	if err != nil {
		audit.Of(r.Context()).Refused("GeneralError", "")
		out.say(failedImage{err.Error(), mayEnd(err)})
		return
	}
	one.done[fsm.PartitionID(p)] = true
	out.say(map[string]bool{"done": true})
}

// failedImage is the last line of the answer to an image that was not restored.
type failedImage struct {
	Error string `json:"error"`
	// Retriable says that the same image may be sent again with success: the cluster was not able to take it just now.
	Retriable bool `json:"retriable"`
}

// restored tells what an entity holds at the end of a restore.
type restored struct {
	Name               string `json:"name"`
	Active             uint64 `json:"active"`
	Scheduled          uint64 `json:"scheduled"`
	Deferred           uint64 `json:"deferred"`
	DeadLetter         uint64 `json:"dead_letter"`
	TransferDeadLetter uint64 `json:"transfer_dead_letter"`
	Transfer           uint64 `json:"transfer"`
	Sessions           uint64 `json:"sessions"`
}

func (s *restores) finish(w http.ResponseWriter, r *http.Request) {
	one := s.find(w, r)
	if one == nil {
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	for _, p := range one.Partitions {
		if !one.done[p] {
			answerJSON(w, http.StatusConflict, map[string]string{"error": fmt.Sprintf(
				"the image of partition %d is not restored yet", p)})
			return
		}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(restoreTimeout + time.Minute))
	ctx, cancel := context.WithTimeout(r.Context(), restoreTimeout)
	defer cancel()
	out := make([]restored, 0, len(one.Entities))
	for _, e := range one.Entities { // before the end: from then on messages come and go
		c, complete, err := s.counts(ctx, e)
		if err == nil && !complete {
			err = fmt.Errorf("a partition does not answer: %w", fsm.ErrUnavailable)
		}
		if err != nil {
			refuseBackup(w, fmt.Errorf("count what %q holds: %w", e.Name, err))
			return
		}
		out = append(out, restored{e.Name, c.Active, c.Scheduled, c.Deferred, c.DeadLetter, c.TransferDeadLetter, c.Transfer,
			c.Sessions})
	}
	if err := s.directory.FinishRestore(ctx, one.Restoring); err != nil {
		refuseBackup(w, err)
		return
	}
	s.forget(one.id)
	answerJSON(w, http.StatusOK, map[string]any{"entities": out})
}

// refuseBackup answers with an error, and with the status that says what the caller does about it.
func refuseBackup(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, partition.ErrNotEmpty):
		status = http.StatusConflict
	case errors.Is(err, fsm.ErrNoEntity):
		status = http.StatusNotFound
	case errors.Is(err, partition.ErrNoFit), errors.Is(err, fsm.ErrFormat):
		status = http.StatusBadRequest
	case mayEnd(err):
		status = http.StatusServiceUnavailable
	}
	answerJSON(w, status, map[string]string{"error": err.Error()})
}

// mayEnd reports whether an error of a backup or a restore may end by itself, as when a partition has a leader again.
func mayEnd(err error) bool {
	return errors.Is(err, fsm.ErrUnavailable) || errors.Is(err, fsm.ErrBusy) || errors.Is(err, fsm.ErrUnknown)
}

// lines writes JSON lines at once.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (l *lines) say(v any) {
	text, err := json.Marshal(v)
	if err == nil {
		_, _ = l.w.Write(append(text, '\n')) // the client has gone: nobody is left to tell
		_ = l.control.Flush()
	}
}
