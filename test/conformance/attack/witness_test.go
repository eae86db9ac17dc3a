package attack

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
)

const queue = "witness"

// witness sends numbered messages through one node after the other.
type witness struct {
	t       *testing.T
	cluster *cluster.Cluster
	queue   string
	size    int
	stop    chan struct{}
	wg      sync.WaitGroup

	mu     sync.Mutex
	next   int
	served map[int]bool     // the nodes that have acknowledged one of its messages
	took   []time.Duration  // of the acknowledged sends, in order
	stored map[string]bool  // acknowledged
	doubt  map[string]error // not acknowledged, and why: they may be stored
}

// watch begins to send messages of size bytes.
func watch(ctx context.Context, t *testing.T, c *cluster.Cluster, size int) *witness {
	t.Helper()
	return watchAt(ctx, t, c, queue, size)
}

// watchAt is watch with a queue of another name.
func watchAt(ctx context.Context, t *testing.T, c *cluster.Cluster, queue string, size int) *witness {
	t.Helper()
	a, err := c.Nodes[0].Admin(false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateQueue(ctx, queue, nil); err != nil {
		t.Fatal(err)
	}
	w := &witness{t: t, cluster: c, queue: queue, size: size, stop: make(chan struct{}),
		served: map[int]bool{}, stored: map[string]bool{}, doubt: map[string]error{}}
	for i := range c.Nodes {
		w.wg.Go(func() { w.send(ctx, i) })
	}
	return w
}

// send sends over one node until it is stopped; a connection that is lost is opened again.
func (w *witness) send(ctx context.Context, at int) {
	for {
		client, err := w.cluster.Nodes[at].Client(false, azservicebus.RetryOptions{MaxRetries: -1})
		if err != nil {
			w.t.Error(err)
			return
		}
		over := w.sendWith(ctx, client, at)
		_ = client.Close(ctx)
		if over {
			return
		}
	}
}

// sendWith sends until the first failure, and reports whether the witness has been stopped.
func (w *witness) sendWith(ctx context.Context, client *azservicebus.Client, at int) bool {
	sender, err := client.NewSender(w.queue, nil)
	if err != nil {
		w.t.Error(err)
		return true
	}
	for {
		select {
		case <-w.stop:
			return true
		case <-time.After(5 * time.Millisecond):
		}
		w.mu.Lock()
		w.next++
		id := fmt.Sprint("m", w.next)
		w.mu.Unlock()
		short, cancel := context.WithTimeout(ctx, patience)
		began := time.Now()
		err := sender.SendMessage(short, &azservicebus.Message{MessageID: &id, Body: w.body(id)}, nil)
		cancel()
		w.mu.Lock()
		if err == nil {
			w.stored[id], w.served[at] = true, true
			w.took = append(w.took, time.Since(began))
		} else {
			w.doubt[id] = err
		}
		w.mu.Unlock()
		if err != nil {
			return false
		}
	}
}

// body is what the message of an id holds: the id over and over.
func (w *witness) body(id string) []byte {
	return bytes.Repeat([]byte(id+" "), w.size/(len(id)+1)+1)[:w.size]
}

// count returns how many messages were acknowledged.
func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stored)
}

// connected waits until every node has acknowledged one message.
func (w *witness) connected(ctx context.Context) {
	w.t.Helper()
	for {
		w.mu.Lock()
		served := len(w.served)
		w.mu.Unlock()
		if served == len(w.cluster.Nodes) {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%d nodes have acknowledged a message: %v", served, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// doubts returns the ids of the messages that were not acknowledged, and the error of each.
func (w *witness) doubts() map[string]error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.doubt)
}

// p99 is how long 99 of 100 acknowledged sends took at most, of those from the first on.
func (w *witness) p99(first int) time.Duration {
	w.mu.Lock()
	took := slices.Clone(w.took[min(first, len(w.took)):])
	w.mu.Unlock()
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)*99-1)/100].Round(100 * time.Microsecond)
}

// judge ends the sending, receives everything, and reports what was lost, doubled or made up.
func (w *witness) judge(ctx context.Context) {
	w.t.Helper()
	close(w.stop)
	w.wg.Wait()
	client, err := w.cluster.Nodes[0].Client(false, azservicebus.RetryOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close(ctx)
	receiver, err := client.NewReceiverForQueue(w.queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]int{}
	for missing := len(w.stored); missing > 0; {
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		all, err := receiver.ReceiveMessages(short, 500, nil)
		cancel()
		if err != nil {
			w.t.Errorf("receive: %v", err)
			break
		}
		for _, m := range all {
			if !bytes.Equal(m.Body, w.body(m.MessageID)) {
				w.t.Errorf("%s has another body, of %d bytes", m.MessageID, len(m.Body))
			}
			if got[m.MessageID]++; got[m.MessageID] == 1 && w.stored[m.MessageID] {
				missing--
			}
		}
	}
	for id := range w.stored {
		if got[id] == 0 {
			w.t.Errorf("%s was acknowledged and is not there", id)
		}
	}
	for id, n := range got {
		if n > 1 || !w.stored[id] && w.doubt[id] == nil {
			w.t.Errorf("%s was received %d times; acknowledged %t, in doubt: %v", id, n, w.stored[id], w.doubt[id])
		}
	}
	w.t.Logf("%d acknowledged, %d in doubt", len(w.stored), len(w.doubt))
}

// limited makes the brokers that this test starts processes with so many descriptors.
func limited(t *testing.T, descriptors int) {
	t.Helper()
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(t.TempDir(), "busbar")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", descriptors, bin)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BUSBAR_BINARY", wrapper)
}
