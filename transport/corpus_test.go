package transport

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// goClientDir is where the sources of the Go client are, or the test is skipped.
func goClientDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/Azure/go-amqp").Output()
	dir := strings.TrimSpace(string(out))
	if _, statErr := os.Stat(dir); err != nil || statErr != nil {
		t.Skipf("the client's sources are not here: %v %v", err, statErr)
	}
	return dir
}

// foreignCorpus reads the inputs that the authors of the Go client found with a fuzzer, out of the
// module cache.
func foreignCorpus(t *testing.T) (inputs [][]byte) {
	t.Helper()
	root := filepath.Join(goClientDir(t), "internal", "encoding", "testdata", "fuzz")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		inputs = append(inputs, b)
		return err
	})
	if err != nil || len(inputs) < 568 {
		t.Fatalf("%d inputs, %v", len(inputs), err)
	}
	return inputs
}

// T-57: 568 inputs that others found, as they are, as the body of a frame, as a message and as a
// request, in every state of a connection: no panic, no client beside is disturbed, nothing changes.
func TestForeignCorpusChangesNothing(t *testing.T) {
	inputs := foreignCorpus(t)
	names := map[stage]string{atSocket: "socket", atSASL: "SASL", atAMQP: "AMQP", atOpen: "open", atToken: "token", atLinks: "links"}
	for at := atSocket; at <= atLinks; at++ {
		t.Run(names[at], func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(b *bubble) {
				orders := b.broker.queue("orders")
				s := &scene{t: t, b: b, number: map[string]fsm.SequenceNumber{}}
				s.enqueue(orders, fsm.Main, "active", "scheduled")
				witness := b.client()
				witness.reach(atLinks)
				before := b.broker.counts(t, "orders")
				kind := byte(amqp.FrameAMQP)
				if at == atSASL {
					kind = byte(amqp.FrameSASL)
				}
				throws := []func(c *rawClient, input []byte){
					func(c *rawClient, input []byte) { c.write(input) },
					func(c *rawClient, input []byte) { c.write(rawFrame(kind, 0, input...)) },
				}
				if at == atLinks {
					throws = append(throws,
						func(c *rawClient, input []byte) { c.send(0, text4(transferOf(4, 1)), input) },
						func(c *rawClient, input []byte) {
							tr := transferOf(2, 1)
							tr.MessageFormat = amqp.Some(uint32(77)) // a good message would be a change
							c.send(0, tr, input)
						})
				}
				for _, throw := range throws {
					for _, input := range inputs {
						c := b.client()
						c.reach(at)
						throw(c, input)
						time.Sleep(time.Millisecond) // virtual: everything that it leads to has happened
						c.close()
					}
				}
				if n := b.server.stats.Rejected[sitePanic].Load(); n != 0 {
					t.Errorf("%d panics", n)
				}
				after := b.broker.counts(t, "orders")
				if after.AccessedAt = before.AccessedAt; after != before {
					t.Errorf("counts were %+v and are %+v", before, after)
				}
				witness.send(0, transferOf(2, 100), amqp.AppendData(nil, []byte("witness")))
				if d, _ := expect[*amqp.Disposition](witness); d.State != (amqp.Accepted{}) {
					t.Errorf("the witness got %v", d.State)
				}
				witness.close()
			})
		})
	}
}
