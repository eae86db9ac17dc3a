package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const (
	backupsPath  = "/api/backups"
	restoresPath = "/api/restores"
	// imageSum is the trailer with the SHA-256 of an image.
	imageSum = "Busbar-Sha256"
	// A request is repeated so often, and a stream that breaks off so often without a new byte. The pause between attempts doubles.
	streamAttempts = 6
	streamPause    = 500 * time.Millisecond
)

// startedBackup is what a cluster says of the images that it has captured.
type startedBackup struct {
	ID         string            `json:"id"`
	Cluster    string            `json:"cluster"`
	Time       time.Time         `json:"time"`
	Version    string            `json:"version"`
	Partitions []backedPartition `json:"partitions"`
}

type backedPartition struct {
	ID    uint16    `json:"id"`
	Index uint64    `json:"index"`
	Wall  time.Time `json:"wall"`
}

// managed sends a request that needs the Manage right, and returns the answer.
func (f *backupFlags) managed(ctx context.Context, method, path string, content io.Reader) (*http.Response, error) {
	token, given := "", f.connects()
	if given {
		t, err := f.Target()
		if err != nil {
			return nil, err
		}
		token = t.Token("", time.Now())
	}
	res, err := f.open(ctx, method, path, content, token)
	return res, needsManage(given, err)
}

// answered sends a request and decodes the answer, which is small.
func (f *backupFlags) answered(ctx context.Context, method, path string, content []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	res, err := f.managed(ctx, method, path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxStatusBytes))
	if err == nil && into != nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// isLater tells whether a refusal may end by itself.
func isLater(err error) bool {
	var later *laterError
	return errors.As(err, &later)
}

// patiently repeats a request while again says that another attempt may help, with a pause that doubles.
func (f *backupFlags) patiently(ctx context.Context, again func(error) bool, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		switch {
		case err == nil || ctx.Err() != nil || !again(err):
			return err
		case attempt == streamAttempts:
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		select {
		case <-time.After(f.pause << (attempt - 1)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startBackup has the cluster capture its images.
func (f *backupFlags) startBackup(ctx context.Context) (*startedBackup, error) {
	s := &startedBackup{}
	err := f.patiently(ctx, isLater, func() error { return f.answered(ctx, http.MethodPost, backupsPath, []byte("{}"), s) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.Partitions, func(a, b backedPartition) int { return int(a.ID) - int(b.ID) })
	for i, p := range s.Partitions {
		if p.ID == 0 || i > 0 && s.Partitions[i-1].ID == p.ID {
			return nil, fmt.Errorf("%s: the node names partition %d, or names it twice", backupsPath, p.ID)
		}
	}
	if s.ID == "" || len(s.Partitions) == 0 {
		return nil, fmt.Errorf("%s: the node names no images", backupsPath)
	}
	return s, nil
}

// dropBackup lets the cluster forget the images. It does so by itself after some minutes.
func (f *backupFlags) dropBackup(ctx context.Context, id string) error {
	return f.answered(ctx, http.MethodDelete, backupsPath+"/"+url.PathEscape(id), nil, nil)
}

// catalogOf reads the catalog of a backup.
func (f *backupFlags) catalogOf(ctx context.Context, id string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	path := backupsPath + "/" + url.PathEscape(id) + "/catalog"
	res, err := f.managed(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxCatalogBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(body) > maxCatalogBytes:
		return nil, fmt.Errorf("%s: the catalog has more than %d bytes", path, maxCatalogBytes)
	case !json.Valid(body):
		return nil, fmt.Errorf("%s: the node answered no JSON", path)
	}
	return body, nil
}

// maxCatalogBytes bounds a catalog in memory. An entity takes about a kilobyte.
const maxCatalogBytes = 256 << 20

// imagePath is that of the image of a partition.
func imagePath(id string, partition uint16) string {
	return backupsPath + "/" + url.PathEscape(id) + "/partitions/" + strconv.Itoa(int(partition))
}

// image reads the image of a partition. When the stream breaks off it asks again, compares what it had, and goes on behind
// it: an image stays what it was captured as.
type image struct {
	ctx   context.Context // of the command; it ends with it
	open  func(ctx context.Context) (*http.Response, error)
	limit time.Duration // in which a byte must come
	pause time.Duration // before the first new attempt
	moved func(uint64)  // is told how many bytes have come

	res    *http.Response
	asked  context.Context // of the request
	quiet  *time.Timer     // cancels the request when no byte comes
	cancel context.CancelCauseFunc
	sum    hash.Hash // of the bytes that were handed out
	n      uint64    // how many these are
	failed int       // attempts since the last byte
}

var errQuiet = errors.New("no byte came in time")

// image reads the image of a partition of a backup. moved is told how many bytes have come.
func (f *backupFlags) image(ctx context.Context, id string, partition uint16, moved func(uint64)) *image {
	return &image{ctx: ctx, limit: f.Timeout, pause: f.pause, moved: moved, sum: sha256.New(),
		open: func(ctx context.Context) (*http.Response, error) {
			return f.managed(ctx, http.MethodGet, imagePath(id, partition), nil)
		}}
}

func (i *image) Read(p []byte) (int, error) {
	for {
		err := i.connect()
		if err == nil {
			i.quiet.Reset(i.limit)
			var n int
			n, err = i.res.Body.Read(p)
			if n > 0 {
				i.sum.Write(p[:n])
				i.n, i.failed = i.n+uint64(n), 0
				i.moved(i.n)
				return n, nil
			}
			if errors.Is(err, io.EOF) {
				return 0, i.end()
			}
			err = i.cause(err)
		}
		if err != nil {
			if err = i.again(err); err != nil {
				return 0, err
			}
		}
	}
}

// end compares what came with what the node has sent.
func (i *image) end() error {
	want, got := i.res.Trailer.Get(imageSum), hex.EncodeToString(i.sum.Sum(nil))
	switch {
	case want == "":
		return fmt.Errorf("the node does not say the SHA-256 of what it sent (%d bytes)", i.n)
	case want != got:
		return fmt.Errorf("the node sent %d bytes with SHA-256 %s, and what came has %s", i.n, want, got)
	}
	return io.EOF
}

// connect opens the stream where it is not open, and passes over what was handed out before.
func (i *image) connect() error {
	if i.res != nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(i.ctx)
	i.asked, i.cancel = ctx, cancel
	i.quiet = time.AfterFunc(i.limit, func() { cancel(errQuiet) })
	res, err := i.open(ctx)
	if err != nil {
		return i.cause(err)
	}
	i.res = res
	sum := sha256.New()
	if err := i.skip(sum); err != nil {
		return i.cause(err)
	}
	if !bytes.Equal(sum.Sum(nil), i.sum.Sum(nil)) {
		return &changedError{i.n}
	}
	i.sum = sum
	return nil
}

// skip reads what was handed out before into sum.
func (i *image) skip(sum io.Writer) error {
	buf := make([]byte, 1<<16)
	for left := i.n; left > 0; {
		i.quiet.Reset(i.limit)
		n, err := i.res.Body.Read(buf[:min(uint64(len(buf)), left)])
		if _, e := sum.Write(buf[:n]); e != nil {
			return e
		}
		left -= uint64(n)
		if err != nil && left > 0 {
			return err
		}
	}
	return nil
}

// cause is errQuiet where that ended a request.
func (i *image) cause(err error) error {
	if errors.Is(context.Cause(i.asked), errQuiet) {
		return fmt.Errorf("%w: %v", errQuiet, i.limit)
	}
	return err
}

// changedError says that a repeated stream is another one, so it cannot be gone on with.
type changedError struct{ bytes uint64 }

func (e *changedError) Error() string {
	return fmt.Sprintf("the stream broke off, and its first %d bytes were others when it was repeated", e.bytes)
}

// again decides about another attempt, and waits before it. It returns the error that ends the reading.
func (i *image) again(err error) error {
	i.Close()
	var changed *changedError
	if i.ctx.Err() != nil || errors.As(err, &changed) || exit.Code(err) != exit.Failed {
		return err // a request that is refused stays refused
	}
	if i.failed++; i.failed >= streamAttempts {
		return fmt.Errorf("after %d attempts: %w", i.failed, err)
	}
	select {
	case <-time.After(i.pause << (i.failed - 1)):
		return nil
	case <-i.ctx.Done():
		return i.ctx.Err()
	}
}

// Close ends the request that is under way.
func (i *image) Close() {
	if i.quiet != nil {
		i.quiet.Stop()
		i.cancel(nil)
	}
	if i.res != nil {
		_ = i.res.Body.Close() // nothing more is wanted of it
	}
	i.res, i.quiet = nil, nil
}
