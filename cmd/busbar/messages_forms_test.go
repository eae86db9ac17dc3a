package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// regions makes a queue with three messages of regions.
func (d *desk) regions(name string, flags ...string) {
	d.t.Helper()
	d.must(client.NewQueueCommand(), "", append([]string{"create", name}, flags...)...)
	for i, region := range []string{"eu", "us", "eu"} {
		d.must(client.NewSendCommand(), "", name, fmt.Sprint("body", i), "--property", "region="+region, "--subject", fmt.Sprint("s", i),
			"--message-id", fmt.Sprint("m", i), "--session", fmt.Sprint("k", i%2))
	}
}

// A message is printed in the same form by each command, and as a format says.
func TestMessagesInEveryForm(t *testing.T) {
	d := newDesk(t)
	d.regions("orders", "--session")
	d.regions("plain")
	byAMQP := d.lines(d.must(client.NewPeekCommand(), "", "plain", "-o", "json"))
	byHTTP := d.lines(d.must(client.NewQueueCommand(), "", "peek", "plain", "-o", "json"))
	if len(byAMQP) != 3 || !reflect.DeepEqual(byAMQP, byHTTP) {
		t.Errorf("peek prints\n%v\nand queue peek\n%v", byAMQP, byHTTP)
	}
	for line, want := range map[string]string{
		"peek plain --filter region='eu' -f %n:%v:%p{region}\\n":      "1:body0:eu\n3:body2:eu\n",
		"peek plain --filter sys.Label='s1' -f %i|%l|%k|%D|%s|%%\\t":  "m1|s1|k1|0|active|%\t",
		"peek plain --filter region='asia' -f %v":                     "",
		"peek plain --filter region='asia' --json":                    "",
		"peek plain --filter region='asia'":                           "plain has no such message",
		"queue peek plain --filter region='us'":                       "body1",
		"peek orders --session k0 --filter region='eu' --max 1 -f %h": `{"region":"eu"}`,
		"peek plain --max 1 -o yaml":                                  "---\nsequenceNumber: 1\nstate: active\nmessageId: m0\n",
		"peek plain --max 1 -o wide":                                  "NUMBER            STATE ",
		"queue list -o jsonl":                                         "}\n{\"accessedAt\"",
		"queue list -o wide":                                          "PARTITIONED  DUPLICATES  MAX MB  ",
		"topic list -o wide":                                          "DUPLICATES  MAX MB  ",
		"queue show plain -o yaml":                                    "\n  active: 3\n",
		"entities list -o jsonl":                                      "}\n{",
		"receive plain --max 1 -f %r%v\\n --complete=false":           "body0\n",
		"messages export plain --filter region='us' --max 1":          `"subject":"s1"`,
		"tail plain --from-start --filter region='eu' --max 2 -f %v,": "body0,body2,",
		"tail plain --from 2 --max 2 -f %v,":                          "body1,body2,",
		"tail orders --from-start --session k1 --max 1 -f %v":         "body1",
	} {
		out, code := d.line(line)
		if code != 0 || !strings.Contains(out, want) || want == "" && out != "" {
			t.Errorf("busbar %s: %d %q, want %q", line, code, out, want)
		}
	}
	for line, want := range map[string]string{
		"peek plain -o xml":              "none of table, wide, json, jsonl, yaml",
		"peek plain -f %":                "ends in %",
		"peek plain -f %y":               "%y means nothing",
		"peek plain -f \\y":              `\y means nothing`,
		"peek plain -f %p{":              "name of a property",
		"peek plain -f %v -o json":       "exclude each other",
		"peek plain --filter a==b":       "syntax error",
		"queue peek plain --filter a==b": "syntax error",
		"peek plain --max -1":            "must not be negative",
		"receive plain -o jsonl":         "busbar messages export",
		"tail plain --every 1ms":         "at least 10ms",
		"tail plain more":                "takes one queue",
		"send plain --jsonl --subject x": "--subject says what a message is",
	} {
		if out, code := d.line(line); code != exit.Usage || !strings.Contains(out, want) {
			t.Errorf("busbar %s: %d %q, want %q", line, code, out, want)
		}
	}
	if out, _ := d.run(client.NewPeekCommand(), "", "missing"); !strings.Contains(out, "could not be found") {
		t.Errorf("peek of a missing queue: %s", out)
	}
}

// line runs a whole command line as a user types it; _ stands for a space in an argument.
func (d *desk) line(line string) (out string, code int) {
	d.t.Helper()
	return d.lineWith("", line)
}

func (d *desk) lineWith(stdin, line string) (out string, code int) {
	d.t.Helper()
	d.t.Setenv("SERVICEBUS_CONNECTION_STRING", d.cs)
	d.t.Setenv("BUSBAR_OPS", d.base)
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "_", " ")
	}
	return execute(d.t, newRoot(), stdin, args...)
}

// A queue is copied to a file and back without a loss: peek writes lines, and send reads them.
func TestLinesOfPeekAreSentBack(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"from", "back"} {
		d.must(client.NewQueueCommand(), "", "create", name)
	}
	w, err := dial.Connect(t.Context(), d.n.target(devKeyName, devKey), "from", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tx, err := w.Session.NewSender(t.Context(), "from", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, group := "text", "s1"
	all := []*amqp.Message{
		{Data: [][]byte{{0xff, 0}, []byte("two sections")}, Properties: &amqp.MessageProperties{MessageID: uint64(7), UserID: []byte{1},
			Subject: &text, GroupID: &group, ContentType: &text}, ApplicationProperties: map[string]any{"b": true, "i8": int8(-1),
			"u64": uint64(1 << 63), "f": float32(1.5), "t": time.UnixMilli(1), "bin": []byte{9}, "uuid": amqp.UUID{1, 2}, "s": "<é>", "n": nil}},
		{Value: map[string]any{"list": []any{int32(1), "x"}}, Header: &amqp.MessageHeader{Durable: true, Priority: 9, TTL: time.Hour}},
		{Sequence: [][]any{{int64(1)}, {"b"}}, Properties: &amqp.MessageProperties{MessageID: amqp.UUID{3}}},
		{Value: "scheduled", Annotations: amqp.Annotations{"x-opt-scheduled-enqueue-time": time.Now().Add(time.Hour).UTC(), "x-own": int16(3)}},
	}
	for _, m := range all {
		if err := tx.Send(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	first, code := d.line("peek from --max 0 -o jsonl")
	if code != 0 || strings.Count(first, "\n") != len(all) {
		t.Fatalf("peek: %d %s", code, first)
	}
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := d.line("send back --jsonl --file " + file); code != 0 || !strings.Contains(out, "sent 4 messages") {
		t.Fatalf("send: %d %s", code, out)
	}
	second, _ := d.line("peek back --max 0 -o jsonl")
	if a, b := timeless(t, first), timeless(t, second); !reflect.DeepEqual(a, b) {
		t.Errorf("what came back differs:\n%v\n%v", a, b)
	}
	if out, code := d.lineWith("{\"format\":1,\"value\":\"x\"}\n", "send back --jsonl"); code != 0 || !strings.Contains(out, "sent 1 message") {
		t.Errorf("send from the standard input: %d %s", code, out)
	}
	if out, code := d.lineWith("nonsense\n", "send back --jsonl"); code != exit.Usage || !strings.Contains(out, "line 1") {
		t.Errorf("send of what is no line: %d %s", code, out)
	}
}

// timeless decodes lines without what each broker sets by itself.
func timeless(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"enqueuedAt", "expiresAt", "sequenceNumber"} {
			delete(v, name)
		}
		all = append(all, v)
	}
	return all
}

// tail prints what comes, and nothing that was there; it takes and locks nothing. That holds for each share of a
// partitioned queue, too.
func TestTailPrintsWhatComes(t *testing.T) {
	for name, partitioned := range map[string]bool{"a queue": false, "a partitioned queue": true} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			flags := []string{"create", "orders"}
			if partitioned {
				flags = append(flags, "--partitioned")
			}
			d.must(client.NewQueueCommand(), "", flags...)
			send := func(texts ...string) {
				t.Helper()
				for _, text := range texts {
					d.must(client.NewSendCommand(), "", "orders", text, "--partition-key", text)
				}
			}
			send("old 1", "old 2", "old 3", "old 4")
			c := client.NewTailCommand()
			read, write := io.Pipe()
			said, says := io.Pipe()
			c.SetOut(write)
			c.SetErr(says)
			args := []string{"orders", "-f", "%v\\n", "--every", "20ms", "--connection-string", d.cs}
			if !partitioned {
				args = append(args, "--filter", "sys.Size > 0")
			}
			c.SetArgs(args)
			c.SilenceErrors, c.SilenceUsage = true, true
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.ExecuteContext(ctx); write.Close() }()
			if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(line, "waiting for messages of orders") {
				t.Fatalf("%q, %v", line, err)
			}
			send("new 1", "new 2", "new 3", "new 4")
			got := map[string]int{}
			lines := bufio.NewScanner(read)
			for len(got) < 4 && lines.Scan() {
				got[lines.Text()]++
			}
			for _, last := range []string{"last", "the last"} { // what is printed twice comes before the second
				send(last)
				for got[last] == 0 && lines.Scan() {
					got[lines.Text()]++
				}
			}
			if want := map[string]int{"new 1": 1, "new 2": 1, "new 3": 1, "new 4": 1, "last": 1, "the last": 1}; !reflect.DeepEqual(got, want) {
				t.Errorf("printed %v", got)
			}
			stop()
			if rest, err := io.ReadAll(read); err != nil || len(bytes.TrimSpace(rest)) > 0 {
				t.Errorf("at the end: %q, %v", rest, err)
			}
			if err := <-done; err != nil {
				t.Errorf("the end: %v", err)
			}
			numbers := d.must(client.NewPeekCommand(), "", "orders", "--max", "0", "-f", "%n ")
			if first := strings.Count(numbers, "2814"); partitioned != (first > 0 && first < 10) {
				t.Errorf("the numbers %s are of one share", numbers)
			}
			if out := d.must(client.NewReceiveCommand(), "", "orders", "--max", "100", "-o", "json"); strings.Count(out, `"deliveryCount":1`) != 10 {
				t.Errorf("received %s", out)
			}
		})
	}
}
