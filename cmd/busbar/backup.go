package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport/audit"
)

const (
	backupsPath = "/api/backups"
	// maxBackups bounds the backups that this node coordinates: each pins bodies on the disks of the cluster.
	maxBackups = 4
	// backupLife is how long a backup is kept that nobody reads.
	backupLife = 10 * time.Minute
	// backupTimeout bounds the creation of a backup: three tries, each shorter than a hold lasts, behind the hold of another one.
	backupTimeout = 2 * time.Minute
	// imageSum is the trailer with the SHA-256 of an image.
	imageSum = "Busbar-Sha256"
)

// backups are those that this node coordinates. A backup ends with its node; its images then end by themselves.
type backups struct {
	directory *partition.Directory
	cluster   func() string // the id of the cluster, empty while this node does not know it
	mu        sync.Mutex
	open      map[string]*openBackup
	begun     int // being created
}

type openBackup struct {
	*partition.Backup
	expiry *time.Timer
}

// withBackups serves the requests of `busbar backup` on the operations port. opsGuard asks for a token.
func (n *node) withBackups(next http.Handler) http.Handler {
	b := &backups{directory: n.directory, cluster: n.clusterID, open: map[string]*openBackup{}}
	r := &restores{directory: n.directory, counts: n.router.Counts, open: map[string]*openRestore{}}
	n.onClose(func(context.Context) error { b.close(); return nil })
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+backupsPath, b.create)
	mux.HandleFunc("GET "+backupsPath+"/{id}/catalog", b.catalog)
	mux.HandleFunc("GET "+backupsPath+"/{id}/partitions/{partition}", b.image)
	mux.HandleFunc("DELETE "+backupsPath+"/{id}", b.drop)
	mux.HandleFunc("POST "+restoresPath, r.begin)
	mux.HandleFunc("PUT "+restoresPath+"/{id}/partitions/{partition}", r.image)
	mux.HandleFunc("POST "+restoresPath+"/{id}/finish", r.finish)
	// A page in an operator's browser can reach the loopback interface: it must not command.
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if isBackupPath(req.URL.Path) {
			guarded.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// clusterID tells clusters apart: it is the digest of the founders, which all nodes of a cluster have for good.
func (n *node) clusterID() string {
	if d := cluster.Founded(n.dir); d != (cluster.Digest{}) {
		return hex.EncodeToString(d[:])
	}
	return ""
}

// isBackupPath reports whether a path is one of backups or restores.
func isBackupPath(path string) bool {
	for _, root := range []string{backupsPath, restoresPath} {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}

func (b *backups) create(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	if len(b.open)+b.begun >= maxBackups {
		b.mu.Unlock()
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": fmt.Sprintf(
			"%d backups are open at this node, the maximum: read or delete one of them", maxBackups)})
		return
	}
	b.begun++
	b.mu.Unlock()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(backupTimeout + time.Minute))
	ctx, cancel := context.WithTimeout(r.Context(), backupTimeout)
	defer cancel()
	made, err := b.directory.CreateBackup(ctx)
	b.mu.Lock()
	b.begun--
	if err == nil {
		b.open[made.ID] = &openBackup{made, time.AfterFunc(backupLife, func() { b.give(made.ID) })}
	}
	b.mu.Unlock()
	if err != nil {
		refuseBackup(w, fmt.Errorf("no backup was taken: %w", err))
		return
	}
	audit.Of(r.Context()).Result("id", made.ID)
	answerJSON(w, http.StatusOK, struct {
		*partition.Backup
		Cluster string `json:"cluster"`
		Version string `json:"version"`
	}{made, b.cluster(), version})
}

// find returns the backup that a request names, and lets it live on. It answers 404 itself.
func (b *backups) find(w http.ResponseWriter, r *http.Request) *partition.Backup {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.open[r.PathValue("id")]
	if one == nil {
		answerJSON(w, http.StatusNotFound, map[string]string{"error": "this node has no such backup; one that nobody reads " +
			"for ten minutes is given up"})
		return nil
	}
	one.expiry.Reset(backupLife)
	return one.Backup
}

func (b *backups) catalog(w http.ResponseWriter, r *http.Request) {
	if one := b.find(w, r); one != nil {
		answerJSON(w, http.StatusOK, partition.BackedUpEntities{Format: partition.FormatOfEntities, Cluster: b.cluster(),
			Entities: one.Entities})
	}
}

// image streams an image. A stream that breaks off has no trailer.
func (b *backups) image(w http.ResponseWriter, r *http.Request) {
	one := b.find(w, r)
	if one == nil {
		return
	}
	p, err := strconv.ParseUint(r.PathValue("partition"), 10, 15)
	if err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "a partition is a number"})
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // none
	sum := sha256.New()
	out := &lazyStream{w: w, also: sum, touch: func() { b.touch(one.ID) }}
	if err := b.directory.WriteImage(r.Context(), one, fsm.PartitionID(p), out); err != nil {
		if !out.begun {
			refuseBackup(w, err)
			return
		}
		panic(http.ErrAbortHandler) // the reader sees that the end is missing
	}
	out.begin()
	w.Header().Set(imageSum, hex.EncodeToString(sum.Sum(nil)))
}

// lazyStream sends the header of a stream with its first bytes, so that an error before them has a status.
type lazyStream struct {
	w     http.ResponseWriter
	also  io.Writer
	touch func()
	begun bool
}

func (s *lazyStream) begin() {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "application/octet-stream")
		s.w.Header().Set("Trailer", imageSum)
		s.w.WriteHeader(http.StatusOK)
	}
}

func (s *lazyStream) Write(p []byte) (int, error) {
	s.begin()
	s.touch()
	_, _ = s.also.Write(p) // a hash takes everything
	return s.w.Write(p)
}

func (b *backups) touch(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.open[id]; one != nil {
		one.expiry.Reset(backupLife)
	}
}

func (b *backups) drop(w http.ResponseWriter, r *http.Request) {
	if one := b.find(w, r); one != nil {
		b.give(one.ID)
		w.WriteHeader(http.StatusNoContent)
	}
}

// give gives a backup up.
func (b *backups) give(id string) {
	b.mu.Lock()
	one := b.open[id]
	delete(b.open, id)
	b.mu.Unlock()
	if one != nil {
		one.expiry.Stop()
		b.directory.DropBackup(context.Background(), one.Backup)
	}
}

func (b *backups) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, one := range b.open { // order-free: each for itself
		one.expiry.Stop()
		delete(b.open, id)
	}
}
