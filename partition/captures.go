package partition

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// captures are the images that this node has captured for backups. An image pins bodies on the disk, so one that nobody
// reads is given up.
type captures struct {
	h    *Host
	mu   sync.Mutex
	held map[captureKey]*capture
	over bool
}

type captureKey struct {
	hold      uint64
	partition fsm.PartitionID
}

const (
	// captureWait is how long a replica that lags may take to apply the hold.
	captureWait = 5 * time.Second
	// captureLife is how long an image is kept of a backup that nobody reads (S-368).
	captureLife = 10 * time.Minute
	// maxCaptures bounds the images that one node holds: a partition has one for each backup, and few backups run.
	maxCaptures = 256
	// chunkOfImage is how much of an image one call reads.
	chunkOfImage = 1 << 20
	// noChunk is asked for to keep an image while another one of its backup is read. A node that does not know it refuses
	// it, and keeps the image as well.
	noChunk = math.MaxUint64
)

// capture is one image, and the stream that reads it now.
type capture struct {
	mu     sync.Mutex // one reader at a time
	image  *replica.Captured
	stream *io.PipeReader
	next   uint64 // the chunk that comes next
	done   chan struct{}
	over   bool // it was given up
	expiry *time.Timer
}

// pointOf is what a backup knows of the image of a partition.
type pointOf struct {
	Index uint64   `json:"index"`
	Wall  fsm.Wall `json:"wall"`
}

// serve captures the image of a partition here, as soon as the hold is in force here.
func (c *captures) serve(ctx context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	if len(b) != 8 {
		return nil, fmt.Errorf("capture of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	k := captureKey{binary.BigEndian.Uint64(b), r.ID()}
	ctx, cancel := context.WithTimeout(ctx, captureWait)
	defer cancel()
	for {
		image, err := r.Capture(k.hold)
		if err == nil {
			kept, err := c.keep(k, image)
			if kept != image {
				err = errors.Join(err, image.Close())
			}
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(pointOf{kept.Index, kept.Wall})
			return append(success(len(text)), text...), err
		}
		if !errors.Is(err, replica.ErrNotHeld) {
			return nil, err
		}
		if sleep(ctx, minPause) != nil {
			return nil, fmt.Errorf("%w: %w", fsm.ErrUnavailable, err)
		}
	}
}

// keep holds an image for the backup, and returns the first that was held for it. A call that the network delivers
// twice must not exchange an image whose point the caller knows.
func (c *captures) keep(k captureKey, image *replica.Captured) (*replica.Captured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, fsm.ErrClosed
	}
	if old := c.held[k]; old != nil {
		return old.image, nil
	}
	if len(c.held) >= maxCaptures {
		return nil, fmt.Errorf("%d images are held for backups already: %w", len(c.held), fsm.ErrBusy)
	}
	one := &capture{image: image}
	one.expiry = time.AfterFunc(captureLife, func() { c.drop(k) })
	c.held[k] = one
	return image, nil
}

// serveRead answers with the next chunk of an image; the first chunk begins anew, and an empty one is the end.
func (c *captures) serveRead(_ context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	if len(b) != 16 {
		return nil, fmt.Errorf("chunk of an image, asked for in %d bytes: %w", len(b), fsm.ErrFormat)
	}
	k := captureKey{binary.BigEndian.Uint64(b), r.ID()}
	c.mu.Lock()
	one := c.held[k]
	c.mu.Unlock()
	if one == nil {
		return nil, fmt.Errorf("no image of partition %d is held for this backup: %w", r.ID(), fsm.ErrNoEntity)
	}
	one.expiry.Reset(captureLife)
	n := binary.BigEndian.Uint64(b[8:])
	if n == noChunk {
		return success(0), nil
	}
	return one.read(n)
}

func (one *capture) read(n uint64) ([]byte, error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if n == 0 && !one.over {
		one.rewindLocked()
	}
	if n != one.next || one.stream == nil {
		return nil, fmt.Errorf("chunk %d of an image, %d is the next: %w", n, one.next, fsm.ErrFormat)
	}
	head := success(chunkOfImage)
	out := append(head, make([]byte, chunkOfImage)...)
	got, err := io.ReadFull(one.stream, out[len(head):])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("read image: %w", err)
	}
	one.next++
	return out[:len(head)+got], nil
}

// rewindLocked begins to write the image anew.
func (one *capture) rewindLocked() {
	one.stopLocked()
	r, w := io.Pipe()
	done := make(chan struct{})
	image := one.image
	one.stream, one.next, one.done = r, 0, done
	go func() {
		defer close(done)
		buf := bufio.NewWriterSize(w, chunkOfImage)
		_, err := image.WriteTo(buf)
		_ = w.CloseWithError(errors.Join(err, buf.Flush()))
	}()
}

// stopLocked ends the stream and waits for its writer.
func (one *capture) stopLocked() {
	if one.stream != nil {
		_ = one.stream.CloseWithError(fsm.ErrClosed)
		<-one.done
		one.stream = nil
	}
}

func (c *captures) drop(k captureKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.held[k]; one != nil {
		c.dropLocked(k, one)
	}
}

// dropLocked gives an image up, behind the read that is under way.
func (c *captures) dropLocked(k captureKey, one *capture) {
	delete(c.held, k)
	one.expiry.Stop()
	c.h.wg.Go(func() {
		one.mu.Lock()
		defer one.mu.Unlock()
		one.stopLocked()
		one.over = true
		if err := one.image.Close(); err != nil {
			c.h.deps.Log.Warn("an image of a backup was not given up", "partition", k.partition, "error", err)
		}
	})
}

// serveDrop gives up the images of a backup that this node holds.
func (c *captures) serveDrop(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != 8 || !c.h.allowed(from) {
		return nil, fmt.Errorf("end of a backup from node %s: %w", from, fsm.ErrFormat)
	}
	hold := binary.BigEndian.Uint64(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, one := range c.held { // order-free: each for itself
		if k.hold == hold {
			c.dropLocked(k, one)
		}
	}
	return nil, nil
}

// close gives all images up.
func (c *captures) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for k, one := range c.held { // order-free: each for itself
		c.dropLocked(k, one)
	}
}
