package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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
	if testing.Short() {
		t.Skip("some minutes of real processes")
	}
	if !inside() {
		t.Skip("no mount namespace: ", noNamespaces())
	}
	dir := t.ArtifactDir()
	home := filepath.Join(dir, "n1")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := command("mount", "-t", "tmpfs", "-o", smallDisk, "none", home); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command("umount", "-l", home) })
	ctx, cancel := context.WithTimeout(context.Background(), 2*fullLimit+readyLimit)
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
	if err := createPlain(ctx, b.nodes[0], "large"); err != nil {
		t.Fatal(err)
	}
	sdk, err := azservicebus.NewClientFromConnectionString(b.nodes[0].connectionString(),
		&azservicebus.ClientOptions{RetryOptions: once})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sdk.Close(context.Background()) }()
	p := &publisher{t: t, sdk: sdk}
	for p.err = nil; p.err == nil && p.sent < mostBodies; {
		p.send(ctx)
	}
	if p.err == nil || ctx.Err() != nil {
		t.Fatalf("%d messages of %d bytes were taken, then: %v", p.sent, largeBody, ctx.Err())
	}
	t.Logf("after %d messages: %v", p.sent, p.err)
	if pid := b.nodes[0].pid(); pid == 0 {
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
