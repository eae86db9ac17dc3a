package partition

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// Replicas that apply the same log must hold the same state. To find out in days when they do not,
// and not in a post-mortem, the leader marks an entry now and then; every replica captures its state
// just behind that entry and computes a digest of the capture while applying goes on. The leader
// compares the digests of one index. A replica that differs from a majority fails, loudly, and is
// rebuilt from those that agree (docs/decisions/0030-digest-checkpoints.md).

// checkpointMark is the extension of an entry behind which every replica computes a digest.
var checkpointMark = []byte("checkpoint/1")

func isCheckpoint(l *raft.Log) bool { return bytes.Equal(l.Extensions, checkpointMark) }

// Digest is a digest of a replica's state behind one entry.
type Digest struct {
	Index uint64 `json:"index"`
	// Form tells how the state was written: the first bytes of its image, with the version. Digests of
	// different forms, as nodes of different versions give them, cannot be compared.
	Form string `json:"form"`
	Sum  string `json:"sum"` // hexadecimal
}

const (
	formBytes = 8  // of an image tell its kind and version
	sumBytes  = 16 // of SHA-256 are kept: enough not to meet by chance
	// keptDigests is how many a replica remembers: a follower that is a little behind is compared, too.
	keptDigests = 4
)

// digest writes an image and returns its digest.
func digest(image io.WriterTo, stop <-chan struct{}) (Digest, error) {
	h := &digester{stop: stop}
	sum := sha256.New()
	h.w = sum
	if _, err := image.WriteTo(h); err != nil {
		return Digest{}, err
	}
	return Digest{Form: hex.EncodeToString(h.form), Sum: hex.EncodeToString(sum.Sum(nil)[:sumBytes])}, nil
}

// digester passes bytes on, keeps the first, and fails when the replica closes.
type digester struct {
	w    io.Writer
	form []byte
	stop <-chan struct{}
}

func (d *digester) Write(b []byte) (int, error) {
	select {
	case <-d.stop:
		return 0, fsm.ErrClosed
	default:
	}
	if len(d.form) < formBytes {
		d.form = append(d.form, b[:min(len(b), formBytes-len(d.form))]...)
	}
	return d.w.Write(b)
}

// digests are those that a replica has computed, oldest first.
type digests struct {
	stop <-chan struct{} // the replica closes
	wg   *sync.WaitGroup

	mu    sync.Mutex
	busy  bool
	next  *checkpoint   // the newest that waits for the one under way
	took  time.Duration // the last one
	kept  []Digest
	fresh broadcast
}

// checkpoint is the state behind a marked entry.
type checkpoint struct {
	index uint64
	image io.WriterTo
}

// compute computes the digest of an image behind the entry with that index, on a goroutine of its own, one at a time.
// Of the images that come meanwhile, as when a log is replayed, the last one is next. The caller is a goroutine that
// ends before wg is waited for.
func (d *digests) compute(index uint64, image io.WriterTo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = &checkpoint{index, image}
	if d.busy {
		return
	}
	d.busy = true
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		d.run()
	}()
}

// run computes until nothing waits.
func (d *digests) run() {
	for {
		d.mu.Lock()
		c := d.next
		d.next, d.busy = nil, c != nil
		d.mu.Unlock()
		if c == nil {
			return
		}
		began := time.Now()
		sum, err := digest(c.image, d.stop)
		sum.Index = c.index
		d.mu.Lock()
		d.took = time.Since(began)
		if err == nil {
			d.kept = append(d.kept[max(0, len(d.kept)+1-keptDigests):len(d.kept):len(d.kept)], sum)
		}
		d.mu.Unlock()
		d.fresh.fire()
	}
}

// list returns what is kept, oldest first; it is not changed any more.
func (d *digests) list() []Digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept
}

// at returns the digest behind an entry.
func (d *digests) at(index uint64) (Digest, bool) {
	for _, x := range d.list() {
		if x.Index == index {
			return x, true
		}
	}
	return Digest{}, false
}

// await waits for the digest behind an entry. The entry may be about to be applied here, or its digest
// may have been left out because another one was under way.
func (d *digests) await(ctx context.Context, index uint64) (Digest, error) {
	for {
		changed := d.fresh.wait()
		if x, ok := d.at(index); ok {
			return x, nil
		}
		if l := d.list(); len(l) > 0 && l[len(l)-1].Index > index {
			return Digest{}, fmt.Errorf("digest behind entry %d was not computed: %w", index, fsm.ErrUnavailable)
		}
		select {
		case <-changed:
		case <-d.stop:
			return Digest{}, fsm.ErrClosed
		case <-ctx.Done():
			return Digest{}, ctx.Err()
		}
	}
}

// digestShare bounds what digests cost: the next one waits this many times as long as the last took.
const digestShare = 100

// due reports whether the leader should mark an entry.
func (d *digests) due(last time.Time, every time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return every > 0 && !d.busy && time.Since(last) >= max(every, digestShare*d.took)
}

// compare judges a group's digests. sums maps voters to their digests of one index and form; voters is
// how many there are. diverged are those who differ from what a majority of all voters agrees upon;
// unclear says that some differ and no majority agrees, so that nobody knows who is right.
func compare(sums map[fsm.NodeID]string, voters int) (diverged []fsm.NodeID, agreed string, unclear bool) {
	count := map[string]int{}
	for _, s := range sums { // order-free: only counts
		count[s]++
	}
	for s, n := range count { // order-free: at most one has a majority
		if n > voters/2 {
			agreed = s
		}
	}
	for n, s := range sums { // sorted below
		if agreed != "" && s != agreed {
			diverged = append(diverged, n)
		}
	}
	slices.Sort(diverged)
	return diverged, agreed, agreed == "" && len(count) > 1
}

var errDiverged = errors.New("state differs from that of a majority of the group")
