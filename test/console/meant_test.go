package console

import (
	"fmt"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
)

// An act on one message is on that message: in the partitions from the 32nd on, whose numbers a double does not hold; in a queue
// that detects duplicates; and in the session with the empty id.
func TestActsAreOnTheMessageThatIsMeant(t *testing.T) {
	t.Parallel()
	node, err := cluster.StartSingle(t.Context(), t.TempDir(), "--partitions", "36")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	d := sit(t, node)
	d.signIn()
	for _, task := range []struct {
		name string
		do   func(*desk)
	}{
		{"a message with a long number is deleted", deleteALongNumber},
		{"an edited dead letter is no duplicate", editWithoutADuplicate},
		{"the session with the empty id has a state", seeTheEmptySession},
	} {
		t.Run(task.name, func(t *testing.T) { task.do(&desk{d.Browser, t, node}) })
	}
}

// put sends a message with a client of the Go SDK.
func (d *desk) put(queue string, m *azservicebus.Message) {
	d.t.Helper()
	s, err := d.client().NewSender(queue, nil)
	if err == nil {
		err = s.SendMessage(d.t.Context(), m, nil)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func deleteALongNumber(d *desk) {
	const long = int64(32) << 48
	d.make("queue", "spread", "Partitioned", "true")
	r, err := d.client().NewReceiverForQueue("spread", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	peek := func() (numbers []int64) {
		d.t.Helper()
		all, err := r.PeekMessages(d.t.Context(), 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(long)})
		if err != nil {
			d.t.Fatal(err)
		}
		for _, m := range all {
			numbers = append(numbers, *m.SequenceNumber)
		}
		return numbers
	}
	for i := 0; len(peek()) == 0; i++ {
		for range 4 { // of one share: its numbers follow each other
			d.put("spread", &azservicebus.Message{PartitionKey: to.Ptr(fmt.Sprint("key-", i))})
		}
	}
	number := peek()[2]
	d.do(d.goes("#/entity/spread/messages"), d.fill("From number", fmt.Sprint(long)), d.press("Show"), d.sees(fmt.Sprint(number)),
		d.fill("From number", ""), d.press("Show"))
	d.do(d.sees("Show more"), func() error { // a page ends with its share
		return d.Until("the message in the list", `(() => {
			const found = [...document.querySelectorAll('tbody button.link')].filter((b) => Number(b.textContent) >= 2 ** 53);
			(found[2] ?? person.button('Show more')).click();
			return found.length > 2;
		})()`)
	}, d.press("Delete…"), d.press("Remove it"), d.sees("The message is removed"), d.press("Close"))
	if slices.Contains(peek(), number) {
		d.t.Errorf("message %d is there still", number)
	}
}

// S-189: the dead letter is deleted when what came of it is stored, so it must not be dropped as a duplicate.
func editWithoutADuplicate(d *desk) {
	d.make("queue", "once", "Detects duplicates", "true")
	d.send("once", "bad", "1", "Message id", "m-1")
	d.receive("once", 1, kill("Poison"))
	d.do(d.goes("#/entity/once/dead"), d.dead("1 dead letter"), func() error {
		return d.Script(`document.querySelector('bb-dead tbody button.link').click(); true`, nil)
	}, d.press("Edit and resend…"), d.fill("Body", "good"), d.submit, d.sees("would drop a message"), d.fill("Message id", "m-2"), d.submit,
		d.sees("There is no dead letter"), d.counts("active", "1"), d.counts("deadLetter", "0"))
}

// RUL-17: the empty id of a session is one like any other.
func seeTheEmptySession(d *desk) {
	d.make("queue", "grouped", "Requires sessions", "true")
	d.put("grouped", &azservicebus.Message{SessionID: to.Ptr("")})
	d.do(d.goes("#/entity/grouped/sessions"), d.sees("(empty)"), d.press("State of session"), d.fill("State (none is set)", "step 3"),
		d.press("Save"), d.sees("The state is saved"))
	if _, err := d.client().AcceptSessionForQueue(d.t.Context(), "grouped", "", nil); err != nil {
		d.t.Fatal(err)
	}
	d.do(d.press("Release session"), d.press("Release"), d.sees("The session is released"), d.press("Close"))
}
