package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// dead makes six dead letters in a queue: three of each reason.
func (d *desk) dead(queue string, flags ...string) {
	d.t.Helper()
	d.must(client.NewQueueCommand(), "", append([]string{"create", queue}, flags...)...)
	for _, reason := range []string{"Poison", "it's late"} {
		for _, region := range []string{"eu", "us", "eu"} {
			d.must(client.NewSendCommand(), "", queue, "of "+region, "--property", "region="+region, "--subject", "s")
			d.must(client.NewReceiveCommand(), "", queue, "--deadletter", "--reason", reason, "--description", "told of "+region)
		}
	}
}

// Dead letters are counted, listed, shown, sent again, deleted and edited, one by one or by a filter.
func TestDeadLettersAreWorkedOn(t *testing.T) {
	d := newDesk(t)
	d.dead("orders")
	d.must(client.NewQueueCommand(), "", "create", "archive")
	numbers := strings.Fields(d.must(client.NewPeekCommand(), "", "orders", "--dlq", "-f", "%n "))
	if len(numbers) != 6 {
		t.Fatalf("dead letters %v", numbers)
	}
	editor := filepath.Join(t.TempDir(), "edit")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/of eu/of asia/' \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", "")
	t.Setenv("EDITOR", editor)
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho nonsense > \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		line string
		code int
		want string
	}{
		{"dlq list", 0, "\norders  Queue  6     0\n"},
		{"dlq list -o jsonl", 0, `{"name":"orders","kind":"Queue","deadLetter":6,"transferDeadLetter":0}`},
		{"dlq list orders --reason it's_late --filter region='us' -o json", 0, `"deadLetterErrorDescription":"told of us"`},
		{"dlq stats orders", 0, "\nPoison     3 "},
		{"dlq stats orders -o json", 0, `"reason":"it's late","count":3`},
		{"dlq show orders " + numbers[0], 0, "deadLetterReason: Poison\n"},
		{"dlq show orders " + numbers[0] + " -o json", 0, `"properties":{"region":"eu"}`},
		{"dlq show orders 99", exit.NotFound, "has no message 99"},
		{"dlq show orders x", exit.Usage, "busbar dlq list orders prints them"},
		{"dlq redrive orders --filter region='us' --dry-run", 0, "selects 2 messages"},
		{"dlq redrive orders --filter region='us' --reason x", exit.Usage, "say it in the filter"},
		{"dlq redrive orders --dry-run", exit.Usage, "goes with --filter"},
		{"dlq redrive orders --filter a==b", exit.Usage, "syntax error"},
		{"dlq redrive orders --filter region='us'_AND_DeadLetterReason='Poison'", 0, "sent again 1 message of orders"},
		{"receive orders --wait 10s -f %v|%r", 0, "of us|"},
		{"dlq redrive orders " + numbers[4] + " --to archive", 0, "sent again 1 message"},
		{"receive archive --wait 10s -f %v|%r", 0, "of us|"},
		{"dlq delete orders " + numbers[0], 0, "deleted 1 message of orders/$DeadLetterQueue"},
		{"dlq delete orders " + numbers[0] + " " + numbers[2], exit.Conflict, "1 of 2 messages were left alone"},
		{"dlq delete orders", exit.Usage, "name the numbers"},
		{"dlq delete", exit.Usage, "name a queue"},
		{"dlq delete orders 1 --filter a=1", exit.Usage, "name the numbers"},
		{"dlq delete orders --filter region='eu'", exit.Usage, "add --yes"},
		{"dlq edit orders " + numbers[3], 0, "sent dead letter " + numbers[3] + " to orders and deleted it"},
		{"receive orders --wait 10s -f %v|%r|%p{region}|%l", 0, "of asia||eu|s"},
		{"dlq edit orders " + numbers[5] + " --to archive --keep", 0, "sent dead letter " + numbers[5] + " to archive\n"},
		{"dlq edit orders " + numbers[3], exit.NotFound, "has no message"},
		{"dlq edit orders " + numbers[5] + " --to missing", exit.NotFound, "what you wrote is in "},
		{"dlq edit trade/Subscriptions/eu 1", exit.Usage, "name a queue or topic by --to"},
		{"queue purge orders --filter region='eu' --yes", 0, "deleted 0 messages of orders\n"},
		{"queue purge orders --dlq --filter region='eu' --reason x --yes", exit.Usage, "say it in the filter"},
		{"queue purge orders --dlq --filter region='eu'", exit.Usage, "selects 1 message of orders/$DeadLetterQueue"},
		{"queue purge orders --dlq --filter region='eu' --yes", 0, "deleted 1 message"},
		{"dlq list", 0, "ENTITY  KIND  DEAD  OF TRANSFER\n"},
	} {
		if out, code := d.line(step.line); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("busbar %s: %d %q, want %d %q", step.line, code, out, step.code, step.want)
		}
	}
	d.dead("others")
	number := strings.Fields(d.must(client.NewPeekCommand(), "", "others", "--dlq", "-f", "%n "))[1]
	if out, code := d.line("dlq edit others " + number); code != 0 || !strings.Contains(out, "nothing was changed") {
		t.Errorf("an edit without a change: %d %s", code, out)
	}
	t.Setenv("EDITOR", broken)
	if out, code := d.line("dlq edit others " + number); code != exit.Usage || !strings.Contains(out, "nothing was sent") {
		t.Errorf("an edit into nonsense: %d %s", code, out)
	}
	t.Setenv("EDITOR", "false")
	if out, code := d.line("dlq edit others " + number); code != exit.Usage || !strings.Contains(out, "set VISUAL or EDITOR") {
		t.Errorf("an editor that fails: %d %s", code, out)
	}

	// The shares of a partitioned queue are counted together, and a number is found in whichever it is.
	d.dead("spread", "--partitioned")
	if out, code := d.line("dlq stats spread -o json"); code != 0 || strings.Count(out, `"count":3`) != 2 {
		t.Errorf("reasons over shares: %d %s", code, out)
	}
	for _, number := range strings.Fields(d.must(client.NewPeekCommand(), "", "spread", "--dlq", "-f", "%n ")) {
		if out, code := d.line("dlq show spread " + number); code != 0 || !strings.Contains(out, "sequenceNumber: "+number+"\n") {
			t.Errorf("show %s: %d %s", number, code, out)
		}
		if out, code := d.line("dlq delete spread " + number); code != 0 || !strings.Contains(out, "deleted 1 message") {
			t.Errorf("delete %s: %d %s", number, code, out)
		}
	}
}

// A queue that detects duplicates would drop an edited message with the id of the dead letter, which would then be deleted:
// the editor has to give it another id. S-189
func TestAnEditedDeadLetterIsNoDuplicate(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders", "--duplicate-window", "10m")
	d.must(client.NewSendCommand(), "", "orders", "wrong", "--message-id", "m-1")
	d.must(client.NewReceiveCommand(), "", "orders", "--deadletter")
	t.Setenv("VISUAL", "")
	for _, step := range []struct {
		editor, line string
		code         int
		want         string
	}{
		{"s/wrong/right/", "dlq edit orders 1", exit.Conflict, "give it another messageId; nothing was sent"},
		{"", "peek orders --dlq -f %v", 0, "wrong"},
		{"s/wrong/right/;s/m-1/m-2/", "dlq edit orders 1", 0, "sent dead letter 1 to orders and deleted it"},
		{"", "receive orders --wait 10s -f %v|%i", 0, "right|m-2"},
		{"", "dlq show orders 1", exit.NotFound, "has no message 1"},
	} {
		t.Setenv("EDITOR", "sed -i '"+step.editor+"'")
		if out, code := d.line(step.line); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("busbar %s: %d %q, want %d %q", step.line, code, out, step.code, step.want)
		}
	}
}

// Messages are deleted by number or filter, whatever their state, and one that a receiver holds is not. S-265
func TestSingleMessagesAreDeleted(t *testing.T) {
	d := newDesk(t)
	d.regions("orders")
	d.must(client.NewSendCommand(), "", "orders", "later", "--in", "1h", "--property", "region=eu")
	d.must(client.NewSendCommand(), "", "orders", "later still", "--in", "1h")
	d.must(client.NewSendCommand(), "", "orders", "more", "--property", "region=eu")
	d.must(client.NewReceiveCommand(), "", "orders", "--defer")
	for _, step := range []struct {
		line string
		code int
		want string
	}{
		{"messages delete orders 2", 0, "deleted 1 message of orders\n"},
		{"messages delete orders 2", exit.Conflict, "There is no message 2 here"},
		{"messages delete orders --filter region='eu'", exit.Usage, "selects 2 messages of orders\n"},
		{"messages delete orders --filter region='eu' --max 1 --yes", 0, "deleted 1 message of orders\n"},
		{"messages delete orders --filter region='eu' --state locked", exit.Usage, "active, scheduled or deferred"},
		{"messages delete orders --filter region='eu' --state scheduled", exit.Usage, "selects 1 message of orders\n"},
		{"messages delete orders --filter region='eu' --state scheduled --yes", 0, "deleted 1 message of orders\n"},
		{"messages delete orders 1", 0, "deleted 1 message of orders\n"},
		{"messages delete orders 1", exit.Conflict, "There is no message 1 here"},
		{"queue peek orders -o json --max 0", 0, "later still"},
		{"messages delete orders zero", exit.Usage, "is no sequence number"},
	} {
		if out, code := d.line(step.line); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("busbar %s: %d %q, want %d %q", step.line, code, out, step.code, step.want)
		}
	}
	if got := d.must(client.NewPeekCommand(), "", "orders", "-f", "%v,"); got != "later still,more," {
		t.Errorf("left: %s", got)
	}
}

// A filter chooses which waiting messages are moved or deleted. Those of other states and the others stay, and so does
// what a receiver holds; a filter that fails on a message does not select it. S-264, S-265
func TestWaitingMessagesAreChosenByAFilter(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "archive")
	for _, queue := range []string{"orders", "spread"} {
		if queue == "spread" {
			d.must(client.NewQueueCommand(), "", "create", queue, "--partitioned")
		} else {
			d.must(client.NewQueueCommand(), "", "create", queue)
		}
		for i := range 30 {
			d.must(client.NewSendCommand(), "", queue, fmt.Sprint("body", i), "--property", "region="+[]string{"eu", "us", "asia"}[i%3])
		}
		d.must(client.NewSendCommand(), "", queue, "later", "--in", "1h", "--property", "region=us")
		for _, step := range []struct {
			line string
			code int
			want string
		}{
			{"queue move QUEUE archive --filter region='us' --dry-run", 0, "selects 10 messages of QUEUE\n"},
			{"queue move QUEUE archive --dry-run", exit.Usage, "goes with --filter"},
			{"queue move QUEUE archive --filter region='us' --session s", exit.Usage, "say it in the filter"},
			{"queue move QUEUE archive --filter a==b", exit.Usage, "syntax error"},
			{"queue move QUEUE QUEUE --filter region='us'", exit.Usage, "are in QUEUE already"},
			{"queue move QUEUE archive --filter region='us' --max 3", 0, "moved 3 messages of QUEUE to archive\n"},
			{"queue move QUEUE archive --filter region='us' -o json", 0, `"moved":7`},
			{"queue purge QUEUE --filter region='eu'", exit.Usage, "selects 10 messages of QUEUE\n"},
			{"queue purge QUEUE --filter region='eu' --before 2030-01-01T00:00:00Z --yes", exit.Usage, "say it in the filter"},
			{"queue purge QUEUE --filter region='eu' --yes", 0, "deleted 10 messages of QUEUE\n"},
			{"queue purge QUEUE --filter region+1=2 --yes", 0, "deleted 0 messages of QUEUE\n"},
		} {
			line, want := strings.ReplaceAll(step.line, "QUEUE", queue), strings.ReplaceAll(step.want, "QUEUE", queue)
			if out, code := d.line(line); code != step.code || !strings.Contains(out, want) {
				t.Errorf("busbar %s: %d %q, want %d %q", line, code, out, step.code, want)
			}
		}
		left := strings.Split(d.must(client.NewPeekCommand(), "", queue, "--max", "100", "-f", "%p{region} "), " ")
		slices.Sort(left)
		if got, want := strings.Join(left, " "), " "+strings.Repeat("asia ", 10)+"us"; got != want {
			t.Errorf("%s has %q, want %q", queue, got, want)
		}
		if out, code := d.line("receive archive --max 10 --wait 10s -f %p{region},"); code != 0 || out != strings.Repeat("us,", 10) {
			t.Errorf("what was moved from %s: %d %q", queue, code, out)
		}
	}
}
