package scenario

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// nodeLog keeps the log lines of all nodes.
type nodeLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *nodeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// drops returns the lines about messages that were dropped for a reason, of all nodes, in their order.
func (l *nodeLog) drops(reason string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "messages ended without being completed") && strings.Contains(line, "reason="+reason) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func wantWords(b *bench, line string, words ...string) {
	b.Helper()
	for _, word := range words {
		if !strings.Contains(line+" ", word+" ") {
			b.Errorf("the line has no %s: %s", word, line)
		}
	}
}

// S-169, S-225, S-263: what a quota refuses, what a batch delete removes and what is deleted with its
// entity is counted, and told of by whoever leads.
func TestWhatEndsWithoutBeingCompletedIsCounted(t *testing.T) {
	log := &nodeLog{}
	on(t, simulation.LabConfig{Log: log}, func(b *bench) {
		b.queue("q", maxBytes(20<<10))
		c := b.bystander()
		big := func(id string) *goamqp.Message { return message(strings.Repeat(".", 9<<10), withID(id)) }
		s := c.sender("q")
		s.send(big("1"), big("2"))
		for range 3 {
			b.refused("send", s.try(big("third")), quotaExceeded)
		}
		lines := log.drops("quota-exceeded")
		want(b, "lines about the quota", len(lines), 1)
		wantWords(b, lines[0], "entity=q", "messages=1", "messageId=third")
		n, err := c.deleteBatch("q", 10, time.Now().Add(time.Minute), "")
		b.must("delete", err)
		want(b, "deleted", n, int32(2))
		want(b, "drops", b.counts("q").Dropped, fsm.Drops{fsm.DropQuota: 3, fsm.DropPurged: 2})
		lines = log.drops("purged")
		want(b, "lines about the batch delete", len(lines), 1)
		wantWords(b, lines[0], "[INFO]", "messages=2", "sequenceNumber=1")

		c.send("q", "left")
		ctx, cancel := b.soon()
		defer cancel()
		b.must("delete the queue", b.lab.Directory(b.node()).Delete(ctx, "q"))
		b.pass(5 * time.Second)
		lines = log.drops("entity-deleted")
		want(b, "lines about the deleted queue", len(lines), 1)
		wantWords(b, lines[0], "entity=q", "messages=1")
	})
}
