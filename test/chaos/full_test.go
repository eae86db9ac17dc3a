package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/namespaces"
)

const (
	smallDisk  = "size=768m" // a partition's log and bodies reserve some tens of MiB
	largeBody  = 200 << 10
	fullLimit  = 3 * time.Minute // to fill it, and again to empty it
	mostBodies = 4096            // of largeBody: more than the disk can hold
)

// TestPublisherRefusedForAFullDiskResumes fills a small disk with messages until a publisher is
// refused, takes them out again, and lets the same publisher go on.
func TestPublisherRefusedForAFullDiskResumes(t *testing.T) {
	n, sdk := smallNode(t, "large")
	ctx, cancel := context.WithTimeout(context.Background(), 2*fullLimit)
	defer cancel()
	p := &publisher{t: t, sdk: sdk}
	for p.err = nil; p.err == nil && p.sent < mostBodies; {
		p.send(ctx)
	}
	if p.err == nil || ctx.Err() != nil {
		t.Fatalf("%d messages of %d bytes were taken, then: %v", p.sent, largeBody, ctx.Err())
	}
	t.Logf("after %d messages: %v", p.sent, p.err)
	if pid := n.Pid(); pid == 0 {
		t.Fatal("the full node has ended")
	}
	got := receiveAll(ctx, t, sdk, p.sent)
	began := time.Now()
	for p.err != nil && ctx.Err() == nil {
		wait(ctx, 100*time.Millisecond)
		p.send(ctx)
	}
	if p.err != nil {
		t.Fatalf("still refused %s after the disk was emptied: %v", time.Since(began), p.err)
	}
	t.Logf("taken again %s after the last message had gone", time.Since(began).Round(time.Millisecond))
	for n := range receiveAll(ctx, t, sdk, p.sent-len(got)) {
		got[n] = true
	}
	for n := range p.sent {
		if !got[n] {
			t.Errorf("message %d was acknowledged and never came", n)
		}
	}
}

// publisher sends numbered messages; one that was refused is sent again.
type publisher struct {
	t    *testing.T
	sdk  *azservicebus.Client
	tx   *azservicebus.Sender
	sent int   // acknowledged
	err  error // of the last attempt
}

func (p *publisher) send(ctx context.Context) {
	if p.tx == nil {
		if p.tx, p.err = p.sdk.NewSender("large", nil); p.err != nil {
			return
		}
	}
	id := strconv.Itoa(p.sent)
	limit, cancel := context.WithTimeout(ctx, opLimit)
	defer cancel()
	if p.err = p.tx.SendMessage(limit, &azservicebus.Message{Body: make([]byte, largeBody), MessageID: &id}, nil); p.err == nil {
		p.sent++
		return
	}
	_ = p.tx.Close(ctx)
	p.tx = nil
}

// receiveAll completes count different messages and returns their numbers.
func receiveAll(ctx context.Context, t *testing.T, sdk *azservicebus.Client, count int) map[int]bool {
	t.Helper()
	rx, err := sdk.NewReceiverForQueue("large", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rx.Close(ctx) }()
	got := map[int]bool{}
	for len(got) < count {
		list, err := rx.ReceiveMessages(ctx, 50, nil)
		if err != nil {
			t.Fatalf("receive after %d of %d: %v", len(got), count, err)
		}
		for _, m := range list {
			err := rx.CompleteMessage(ctx, m, nil)
			if lost := (*azservicebus.Error)(nil); errors.As(err, &lost) && lost.Code == azservicebus.CodeLockLost {
				continue // it comes again
			}
			if err != nil {
				t.Fatalf("complete after %d of %d: %v", len(got), count, err)
			}
			n, err := strconv.Atoi(m.MessageID)
			if err != nil {
				t.Fatal(err)
			}
			got[n] = true
		}
	}
	return got
}

// smallNode runs one node on a small disk with a queue, for as long as the test lasts.
func smallNode(t *testing.T, queue string) (*node, *azservicebus.Client) {
	t.Helper()
	if testing.Short() {
		t.Skip("some minutes of real processes")
	}
	if !namespaces.Inside() {
		t.Skip("no mount namespace: ", noNamespaces())
	}
	dir := t.ArtifactDir()
	home := filepath.Join(dir, "n1")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Run("mount", "-t", "tmpfs", "-o", smallDisk, "none", home); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces.Run("umount", "-l", home) })
	ctx, cancel := context.WithTimeout(context.Background(), 2*readyLimit)
	defer cancel()
	b, err := newBed(ctx, bedConfig{dir: dir, binary: binary(t), network: overBridge, nodes: 1}, supervised(t))
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := createPlain(ctx, b.nodes[0], queue); err != nil {
		t.Fatal(err)
	}
	sdk, err := azservicebus.NewClientFromConnectionString(b.nodes[0].Plain(),
		&azservicebus.ClientOptions{RetryOptions: once})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sdk.Close(context.Background()) })
	return b.nodes[0], sdk
}

// refusalLimit is for how long something is tried that must not be taken; the broker may try it for the
// client as long.
const refusalLimit = 5 * time.Second

// left is what another user of the disk leaves free: below three hundredths, with the ballast given back.
const left = 4 << 20

// TestFullDiskTakesDeletions has somebody else fill the disk of a node: it refuses messages, and then
// even settlements, but a queue can be deleted; when there is room again it goes on by itself.
func TestFullDiskTakesDeletions(t *testing.T) {
	n, sdk := smallNode(t, "large")
	ctx, cancel := context.WithTimeout(context.Background(), fullLimit)
	defer cancel()
	if err := createPlain(ctx, n, "spare"); err != nil {
		t.Fatal(err)
	}
	p := &publisher{t: t, sdk: sdk}
	for p.sent < 20 {
		if p.send(ctx); p.err != nil {
			t.Fatal(p.err)
		}
	}
	rx, err := sdk.NewReceiverForQueue("large", nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := rx.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(filepath.Dir(n.Dir), "filler")
	fillUntil(t, filler, left)
	// The disk is looked at once a second.
	for err = nil; err == nil && ctx.Err() == nil; wait(ctx, 50*time.Millisecond) {
		_, err = n.Get(ctx, "/api/health/checks/disk-space")
	}
	if _, err := n.Get(ctx, "/readyz"); err != nil {
		t.Errorf("a full disk turns receivers away, who would make room: %v", err)
	}
	sending, stopSending := context.WithTimeout(ctx, refusalLimit)
	defer stopSending()
	p.send(sending)
	// The node cuts its logs to make room, and the other user takes that as well.
	renewed := error(nil)
	for renewed == nil && ctx.Err() == nil {
		fillUntil(t, filler, left)
		wait(ctx, 2*time.Second) // the disk is looked at
		renewing, stopRenewing := context.WithTimeout(ctx, refusalLimit)
		renewed = rx.RenewMessageLock(renewing, list[0], nil)
		stopRenewing()
	}
	t.Logf("space: %v; a message: %v; a renewal: %v", err, p.err, renewed)
	if p.err == nil || renewed == nil || !strings.Contains(fmt.Sprint(err), "disk is nearly full") {
		t.Fatal("a full disk refuses nothing")
	}
	a, err := administrator(n)
	if err != nil {
		t.Fatal(err)
	}
	creating, stopCreating := context.WithTimeout(ctx, refusalLimit)
	defer stopCreating()
	if _, err := a.CreateQueue(creating, "more", nil); err == nil {
		t.Error("a queue was created on a full disk")
	}
	if _, err := a.DeleteQueue(ctx, "large", nil); err != nil {
		t.Fatalf("a queue cannot be deleted on a full disk: %v", err)
	}
	if _, err := a.GetQueue(ctx, "spare", nil); err != nil {
		t.Error(err)
	}
	if n.Pid() == 0 {
		t.Fatal("the full node has ended")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	// Readiness says nothing of the disk (0060): the end of the alarm says that messages are stored again.
	limit, stopWaiting := context.WithTimeout(ctx, readyLimit)
	defer stopWaiting()
	for err = errors.New("not asked"); err != nil; wait(limit, 50*time.Millisecond) {
		if _, err = n.Get(limit, "/api/health/checks/disk-space"); limit.Err() != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.CreateQueue(ctx, "large", nil); err != nil {
		t.Fatal(err)
	}
	again := &publisher{t: t, sdk: sdk}
	if again.send(ctx); again.err != nil {
		t.Fatal(again.err)
	}
	if got := receiveAll(ctx, t, sdk, 1); !got[0] {
		t.Error("what was sent when there was room again did not come")
	}
}

// fillUntil makes a file larger until no more than a number of bytes is free.
func fillUntil(t *testing.T, name string, bytes int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(name), &st); err != nil {
		t.Fatal(err)
	}
	if free := int64(st.Bavail) * st.Bsize; free > bytes {
		if err := syscall.Fallocate(int(f.Fd()), 0, size, free-bytes); err != nil {
			t.Fatal(err)
		}
	}
}
