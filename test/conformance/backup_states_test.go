package conformance

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// flipped is how many places of the backup are changed in turn.
var flipped = flag.Int("flips", 40, "places of a backup that are changed in turn")

// Entities of the backup whose messages are in many states, or come by transactions.
const (
	stillMixed = "still-mixed"
	loadVia    = "load-via"
	loadOther  = "load-other"
)

// mixedOf is how many messages of each state stillMixed has: scheduled, deferred, dead, abandoned once, and ready.
func mixedOf() int { return max(5, *backedUp/100) }

// mixed fills stillMixed. Several receivers settle, for a settlement waits for an answer.
func (b *backupCase) mixed(c *azservicebus.Client) {
	b.Helper()
	n := mixedOf()
	b.batches(c, stillMixed, 4*n, func(int) *string { return nil })
	s := b.sender(c, stillMixed)
	later := time.Now().Add(6 * time.Hour)
	for i := 0; i < n; i += 50 {
		var page []*azservicebus.Message
		for k := i; k < min(n, i+50); k++ {
			page = append(page, &azservicebus.Message{Body: fmt.Appendf(nil, "later %d", k)})
		}
		_, err := s.ScheduleMessages(b.ctx, page, later.Add(time.Duration(i)*time.Second), nil)
		b.must("schedule", err)
	}
	r := b.receiver(c, stillMixed, nil)
	for _, f := range []func(*azservicebus.ReceivedMessage) error{
		func(m *azservicebus.ReceivedMessage) error { return r.DeferMessage(b.ctx, m, nil) },
		func(m *azservicebus.ReceivedMessage) error {
			return r.DeadLetterMessage(b.ctx, m, &azservicebus.DeadLetterOptions{Reason: to("reason of " + m.MessageID)})
		},
		func(m *azservicebus.ReceivedMessage) error {
			return r.AbandonMessage(b.ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tries": int64(1)}})
		},
	} {
		var all []*azservicebus.ReceivedMessage
		for len(all) < n {
			all = append(all, b.take(r, min(200, n-len(all)))...)
		}
		b.settleAll(all, f)
	}
	b.must("close", r.Close(b.ctx))
}

// settleAll settles messages, some at a time.
func (b *backupCase) settleAll(all []*azservicebus.ReceivedMessage, f func(*azservicebus.ReceivedMessage) error) {
	b.Helper()
	const atOnce = 16
	var wg sync.WaitGroup
	for part := range slices.Chunk(all, (len(all)+atOnce-1)/atOnce) {
		wg.Go(func() {
			for _, m := range part {
				if err := f(m); err != nil {
					b.Errorf("settle %s: %v", m.MessageID, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// flips changes one bit after the other in the files of the backup. Each change is found, and its file is named.
func (b *backupCase) flips() {
	b.Helper()
	seed := rand.Uint64() % 1_000_000
	r := rand.New(rand.NewPCG(seed, 0))
	b.Logf("%d places are drawn by the seed %d", *flipped, seed)
	files, err := os.ReadDir(b.at)
	b.must("list", err)
	for i := range *flipped {
		name := files[i%len(files)].Name() // each file as often: backup.json is small
		f, err := os.OpenFile(filepath.Join(b.at, name), os.O_RDWR, 0)
		b.must("open", err)
		info, err := f.Stat()
		b.must("stat", err)
		at := r.Int64N(info.Size())
		var was [1]byte
		_, err = f.ReadAt(was[:], at)
		b.must("read", err)
		_, err = f.WriteAt([]byte{was[0] ^ 1<<r.IntN(8)}, at)
		b.must("write", err)
		printed, said := b.s.both(1, "", "backup", "verify", b.at)
		b.check(strings.Contains(printed+said, name), "byte %d of %s was changed, and verify said %q", at, name, said)
		_, err = f.WriteAt(was[:], at)
		b.must("put back", errors.Join(err, f.Close()))
	}
	b.s.do(0, "", "backup", "verify", b.at)
}

// transactions is a client that commits transactions over two queues: no SDK of this language has them.
type transactions struct {
	b          *backupCase
	c          *raw.Client
	via, other uint32
	k          uint32
}

func (b *backupCase) transactions() *transactions {
	b.Helper()
	e := &rawEnv{env: b.env, wire: raw.Plain}
	e.c = e.connect(0)
	return &transactions{b: b, c: e.c, via: e.sender(loadVia), other: e.sender(loadOther), k: e.coordinator()}
}

func (t *transactions) close() { t.c.Close() }

// one sends the same number to both queues in one transaction.
func (t *transactions) one(n int) bool {
	id, err := t.c.Declare(t.k)
	if err == nil {
		_, err = t.c.Deliver(t.via, &amqp.TransactionalState{TxnID: id}, encode(fmt.Sprintf("%s %d", loadVia, n)))
	}
	if err == nil { // the queue of the first operation is the one by which the other is reached
		_, err = t.c.Deliver(t.other, &amqp.TransactionalState{TxnID: id}, encode(fmt.Sprintf("%s %d", loadOther, n)))
	}
	if err == nil {
		err = t.c.Discharge(t.k, id, false)
	}
	if err != nil {
		t.b.Errorf("transaction %d beside a backup: %v", n, err)
	}
	return err == nil
}

// openTransaction sends in a transaction that is committed when the returned function is called. A transaction lasts two minutes, so
// one of a long backup may be over.
func (b *backupCase) openTransaction() (commit func()) {
	b.Helper()
	t := b.transactions()
	id, err := t.c.Declare(t.k)
	b.must("declare", err)
	_, err = t.c.Deliver(t.via, &amqp.TransactionalState{TxnID: id}, encode("open 0"))
	b.must("send in a transaction", err)
	began := time.Now()
	return func() {
		b.Helper()
		defer t.close()
		if err := t.c.Discharge(t.k, id, false); err != nil && time.Since(began) < 100*time.Second {
			b.Errorf("commit what was open while the backup was taken: %v", err)
		}
	}
}

// transactionsAreWhole waits until each transaction has both of its messages.
func (b *backupCase) transactionsAreWhole() {
	b.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(100 * time.Millisecond) {
		via, other := len(b.lines(loadVia)), len(b.lines(loadOther))
		if via == other {
			return
		}
		if time.Now().After(deadline) {
			b.Errorf("%s has %d messages and %s has %d: a transaction came back in part", loadVia, via, loadOther, other)
			return
		}
	}
}
