package replica

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
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
	formBytes = 8 // of an image tell its kind and version
	// SumBytes of SHA-256 are kept: enough not to meet by chance.
	SumBytes = 16
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
	return Digest{Form: hex.EncodeToString(h.form), Sum: hex.EncodeToString(sum.Sum(nil)[:SumBytes])}, nil
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
	fresh chan struct{} // closed and replaced when there is another one
}

func newDigests(stop <-chan struct{}, wg *sync.WaitGroup) *digests {
	return &digests{stop: stop, wg: wg, fresh: make(chan struct{})}
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
		close(d.fresh)
		d.fresh = make(chan struct{})
		d.mu.Unlock()
	}
}

// list returns what is kept, oldest first; it is not changed any more.
func (d *digests) list() []Digest {
	kept, _ := d.news()
	return kept
}

// news returns what is kept, and a channel that is closed when there is more.
func (d *digests) news() ([]Digest, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept, d.fresh
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
		l, changed := d.news()
		for _, x := range l {
			if x.Index == index {
				return x, nil
			}
		}
		if len(l) > 0 && l[len(l)-1].Index > index {
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

// Digests returns the newest digests of the state, oldest first; they are not changed any more.
func (r *Replica) Digests() []Digest { return r.machine.digests.list() }

// DigestAt returns the digest behind an entry, if it is kept.
func (r *Replica) DigestAt(index uint64) (Digest, bool) { return r.machine.digests.at(index) }

// AwaitDigest waits for the digest behind an entry, which may be about to be applied here.
func (r *Replica) AwaitDigest(ctx context.Context, index uint64) (Digest, error) {
	return r.machine.digests.await(ctx, index)
}

// Dispute reports, once per entry, that replicas differ and nobody knows which of them is right. Nothing
// is done by itself: what is thrown away could be what is right. An entry before one that was told tells nothing new.
func (r *Replica) Dispute(index uint64, sums map[fsm.NodeID]string) {
	if r.disputed.Load() < index {
		r.disputed.Store(index)
		r.log.Error("replicas differ and no majority agrees", "index", index, "digests", sums)
	}
}
