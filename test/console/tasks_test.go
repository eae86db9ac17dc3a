package console

import (
	"context"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// Each task of a developer's first day and of an operator's, without a terminal, on one node.
func TestTasksOnOneNode(t *testing.T) {
	t.Parallel()
	node, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	d := sit(t, node)
	d.signIn()
	for _, task := range tasks {
		if !t.Run(task.name, func(t *testing.T) { task.do(&desk{d.Browser, t, node}) }) {
			return // later tasks go on with what earlier ones made
		}
	}
}

// tasks are done in this order.
var tasks = []struct {
	name string
	do   func(*desk)
}{
	{"a queue is made, used and emptied", useAQueue},
	{"a message is scheduled and cancelled", scheduleAndCancel},
	{"dead letters are redriven, edited, deleted and purged", workOnDeadLetters},
	{"messages are found by a filter and moved", filterAndMove},
	{"settings are changed with a diff", changeSettings},
	{"a topic gets a subscription with rules that are tested", makeATopic},
	{"the state of a session is seen and set", seeSessions},
	{"a lock is released", releaseALock},
	{"a client is listed and closed", closeAClient},
	{"an entity is suspended, resumed and deleted", suspendAndDelete},
	{"the cluster is seen", seeTheCluster},
	{"counts come by themselves", watchCounts},
}

func useAQueue(d *desk) {
	d.make("queue", "orders", "Maximum deliveries", "5", "Lock duration", "30s")
	d.do(d.goes("#/entity/orders/receive"), d.press("Lock the next one"), d.sees("There is no message now"))
	d.send("orders", `{"order": 17}`, "1", "Subject", "order", "Message id", "m-17", "Content type", "application/json")
	d.send("orders", "plain", "60")
	d.do(d.goes("#/entity/orders/messages"), d.sees("50 messages shown"), d.press("Show more"), d.sees("61 messages shown"), d.counts("active", "61"))
	d.do(d.press("1"), d.sees("Message 1"), d.sees("m-17"), d.sees(`"order": 17`), d.press("Hex"), d.sees("7b 22 6f 72"), d.press("Text"), d.sees(`{"order": 17}`), d.press("Close"))
	d.do(d.goes("#/entity/orders/receive"), d.press("Lock the next one"), d.sees("Message 1"), d.press("Complete"), d.sees("The message is completed"),
		d.press("Receive and delete"), d.sees("Message 2"), d.counts("active", "59"))
	d.send("orders", "other", "2", "Subject", "other")
	d.do(d.goes("#/entity/orders/messages"), d.fill("Filter, SQL of rules", "sys.Label = 'other'"), d.press("Show"), d.sees("2 messages shown"),
		d.press("Move…"), d.sees("that the filter sys.Label = 'other' selects are moved"), d.press("Cancel"))
	d.do(d.press("Purge…"), d.sees("that the filter sys.Label = 'other' selects are deleted"), d.fill("Type orders to go on", "orders"), d.press("Purge"),
		d.sees("2 messages deleted"), d.press("Close"), d.counts("active", "59"), d.fill("Filter, SQL of rules", ""), d.fill("State", "deferred"))
	d.do(d.press("Purge…"), d.sees("and not what is deleted"), d.press("Cancel"), d.fill("State", "active"))
	d.do(d.press("Purge…"), d.sees("59 active messages are there"), d.fill("Type orders to go on", "orders"), d.press("Purge"),
		d.sees("59 messages deleted"), d.press("Close"), d.counts("active", "0"), d.sees("There is no such message"))
}

func scheduleAndCancel(d *desk) {
	at := time.Now().Add(time.Hour).Format("2006-01-02T15:04:05")
	d.send("orders", "later", "1", "Enqueue at (your time)", at)
	d.do(d.goes("#/entity/orders/messages"), d.counts("scheduled", "1"), d.fill("State", "scheduled"), d.press("Show"), d.sees("1 message shown"), d.sees("for "))
	d.do(func() error {
		return d.Script(`document.querySelector('tbody button.link').click(); true`, nil)
	}, d.press("Cancel…"), d.sees("One message is removed"), d.press("Remove it"), d.sees("The message is removed"), d.press("Close"), d.counts("scheduled", "0"))
}

func workOnDeadLetters(d *desk) {
	d.send("orders", "bad", "4")
	d.receive("orders", 4, kill("Poison"))
	d.send("orders", "late", "3")
	d.receive("orders", 3, kill("TooLate"))
	d.do(d.goes("#/entity/orders/dead"), d.dead("7 dead letters"), d.sees("it said so"), d.counts("deadLetter", "7"))
	d.do(d.press("Redrive dead letters with the reason TooLate"), d.sees("3 dead letters of orders are sent again"), d.press("Redrive"), d.sees("3 messages sent on"), d.press("Close"),
		d.dead("4 dead letters"), d.counts("active", "3"))
	first := func() error {
		return d.Script(`document.querySelector('bb-dead tbody button.link').click(); true`, nil)
	}
	d.do(first, d.press("Edit and resend…"), d.sees("The message goes to orders as a new one"), d.fill("Body", "good"), d.fill("Subject", "mended"), d.submit,
		d.dead("3 dead letters"), d.counts("active", "4"))
	d.do(first, d.press("Delete…"), d.sees("One dead letter is deleted for good"), d.press("Delete"), d.sees("The dead letter is deleted"), d.press("Close"), d.dead("2 dead letters"))
	d.do(first, d.press("Redrive…"), d.press("Redrive"), d.sees("The message was sent again"), d.press("Close"), d.dead("1 dead letter"), d.counts("active", "5"))
	d.do(d.press("Purge all dead letters"), d.sees("1 dead letter of orders is deleted for good"), d.fill("Type orders to go on", "orders"), d.press("Purge"), d.sees("1 message deleted"),
		d.press("Close"), d.sees("There is no dead letter"))
}

// dead waits for the sum of the dead letters on their page. The tree at the side knows it earlier, by events.
func (d *desk) dead(sum string) func() error {
	return func() error {
		return d.Until("the sum "+sum, "document.querySelector('bb-dead .sum strong')?.textContent === "+quote(sum))
	}
}

func filterAndMove(d *desk) {
	d.make("queue", "archive")
	d.do(d.goes("#/entity/orders/messages"), d.fill("Filter, SQL of rules", "sys.Label = 'mended'"), d.press("Show"), d.sees("1 message shown"), d.sees("good"))
	d.do(d.fill("Filter, SQL of rules", "sys.Label ="), d.press("Show"), d.sees("The filter is not valid"))
	d.do(d.fill("Filter, SQL of rules", ""), d.fill("From number", "abc"), d.press("Show"), d.sees("from must be a number"), d.fill("From number", ""))
	d.do(d.press("Move…"), d.sees("5 active messages are there"), d.fill("To queue or topic", "nowhere"), d.press("Move"), d.sees("There is no entity"), d.press("Close"))
	d.do(d.press("Move…"), d.fill("To queue or topic", "archive"), d.press("Move"), d.sees("5 messages moved to archive"), d.press("Close"), d.counts("active", "0"))
	d.do(d.goes("#/entity/archive/messages"), d.counts("active", "5"))
}

func changeSettings(d *desk) {
	d.do(d.goes("#/entity/orders/settings"), d.sees("Maximum deliveries"), d.fill("Lock duration", "1 week"), d.press("Review changes"), d.sees("write a duration like 30s"))
	d.do(d.fill("Lock duration", "10d"), d.press("Review changes"), d.sees("LockDuration"))
	d.do(d.fill("Lock duration", "45s"), d.fill("Maximum deliveries", "7"), d.fill("Keep a history of processed messages", "true"), d.press("Review changes"),
		d.sees("30s"), d.sees("45s"), d.press("Save"), d.sees("The settings of orders are saved"))
	d.do(d.goes("#/entity/orders/messages"), d.goes("#/entity/orders/settings"), func() error {
		return d.Until("the new settings", `person.field('Maximum deliveries')?.value === '7' && person.field('Lock duration')?.value === '45s'`)
	}, d.press("Review changes"), d.sees("Nothing is changed"))
	d.send("orders", "processed", "1")
	d.do(d.goes("#/entity/orders/receive"), d.press("Receive and delete"), d.sees("deleted"), d.goes("#/entity/orders/history"), d.sees("completed"))
}

func makeATopic(d *desk) {
	d.make("topic", "trade")
	d.do(d.sees("The topic has no subscription"), d.press("New subscription"), d.sees("New subscription of trade"), d.fill("Name", "eu"), d.press("Create"), d.sees("trade/Subscriptions/eu is created"))
	d.do(d.press("Rules"), d.sees("$Default"), d.press("New rule…"), d.fill("Name", "cheap"), d.fill("SQL filter", "price <"), d.press("Save"), d.sees("The rule is not valid"),
		d.fill("SQL filter", "price < 10"), d.fill("Action", "SET cheap = TRUE"), d.press("Save"), d.sees("The rule cheap is saved"), d.sees("price < 10"))
	d.do(d.press("Delete rule $Default"), d.sees("The subscription selects by the rule no more"), d.press("Delete"), d.sees("The rule is deleted"), d.press("Close"), d.seesNot("$Default"))
	test := func() error {
		return d.Script(`[...document.querySelectorAll('.tester button')].find((b) => b.textContent === 'Test').click(); true`, nil)
	}
	d.do(func() error {
		return d.Script(`[...document.querySelectorAll('.tester button')].find((b) => b.textContent === 'Add a property').click(); true`, nil)
	}, d.fill("Name of the property", "price"), d.fill("Type of the property", "int"), d.fill("Value of the property", "x"), test, d.sees("is not of the type int"),
		d.fill("Value of the property", "7"), test, d.sees("✓ yes"), d.sees("SET cheap = true"), d.fill("Value of the property", "17"), test, d.sees("✗ no"))
	d.send("trade", "sold", "2")
	d.do(d.press("Add a property"), d.fill("Name of the property", "price"), d.fill("Type of the property", "number"), d.fill("Value of the property", "ten"), d.submit, d.sees("is no number"),
		d.fill("Value of the property", "9.5"), d.submit) // and away at once: what was sent is sent
	d.do(d.goes("#/entity/trade/subscriptions"), d.sees("eu"), d.press("eu"), d.counts("active", "2"), d.press("Messages"), d.sees("sold"))
}

func seeSessions(d *desk) {
	d.make("queue", "grouped", "Requires sessions", "true")
	d.send("grouped", "first", "2", "Session", "s-1")
	d.do(d.goes("#/entity/grouped/sessions"), d.press("State of session s-1"), d.sees("none is set"), d.fill("State (none is set)", "step 3"), d.press("Save"), d.sees("The state is saved"))
	d.do(d.press("State of session s-1"), d.sees("State, 6 B"), d.press("Clear"), d.sees("The state is removed"))
	d.do(d.goes("#/entity/grouped/messages"), d.fill("Session", "s-1"), d.press("Show"), d.sees("2 messages shown"))
	s, err := d.client().AcceptSessionForQueue(d.t.Context(), "grouped", "s-1", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := s.ReceiveMessages(d.t.Context(), 1, nil); err != nil {
		d.t.Fatal(err)
	}
	d.do(d.goes("#/entity/grouped/sessions"), d.press("State of session s-1"), d.sees("The session is held by a receiver"))
	d.do(d.press("Release session s-1"), d.sees("The session is taken from its holder"), d.press("Release"), d.sees("The session is released"), d.press("Close"))
	_ = s.Close(d.t.Context()) // the SDK may have taken the session again
	d.do(d.press("Release session s-1"), d.press("Release"), d.sees("Nobody holds the session"), d.press("Close"),
		d.goes("#/entity/grouped/history"), d.fill("History of", "releases"), d.sees("policy RootManageSharedAccessKey"))
	d.do(d.goes("#/entity/grouped"), d.holdsBack("kind=processed"), d.goes("#/entity/grouped/history"), d.fill("History of", "releases"), d.sees("policy RootManageSharedAccessKey"),
		d.goesOn, d.seesNot("The entity does not keep this history"), d.sees("policy RootManageSharedAccessKey"))
}

// holdsBack delays the page's next request whose address contains a text. It reaches the node when goesOn is called.
func (d *desk) holdsBack(text string) func() error {
	return func() error {
		return d.Script(`(() => {
  const ask = window.fetch;
  window.fetch = async (...what) => {
    if (!String(what[0]).includes('`+text+`')) {
      return ask(...what);
    }
    window.fetch = ask;
    await new Promise((go) => { window.goOn = go; });
    return ask(...what).finally(() => setTimeout(() => { window.wentOn = true; }, 100));
  };
  return true;
})()`, nil)
	}
}

// goesOn sends the request that holdsBack has delayed, and waits until the page has handled its end.
func (d *desk) goesOn() error {
	if err := d.Script(`window.goOn(); true`, nil); err != nil {
		return err
	}
	return d.Until("the answer to the old request", "Boolean(window.wentOn)")
}

func releaseALock(d *desk) {
	d.send("orders", "held", "1")
	r := d.receive("orders", 1, keep)
	d.do(d.goes("#/entity/orders/locks"), d.sees("127.0.0.1"), d.counts("locked", "1"), func() error {
		return d.Script(helpers+`[...document.querySelectorAll('td.acts button')].find((b) => b.textContent === 'Release…').click(); true`, nil)
	}, d.sees("It ends as if it had run out"), d.press("Release"), d.sees("1 released"), d.press("Close"), d.sees("Nobody holds a message"), d.counts("locked", "0"))
	d.do(d.goes("#/entity/orders/history"), d.fill("History of", "releases"), d.sees("policy RootManageSharedAccessKey"))
	_ = r.Close(context.Background())
}

func closeAClient(d *desk) {
	r := d.receive("archive", 1, keep)
	defer func() { _ = r.Close(context.Background()) }()
	d.do(d.goes("#/connections"), d.sees("MSGolangClient"), d.fill("With a link to", "nobody"), d.press("Show"), d.sees("No such client is connected"), d.press("Close all of these…"),
		d.sees("Close all connections with a link to nobody"), d.press("Cancel"))
	d.do(d.goes("#/entity/archive/clients"), d.sees("receiver archive"), func() error {
		return d.Script(`document.querySelector('td.acts button.danger').click(); true`, nil)
	}, d.sees("1 connection ends in good order"), d.press("Close"), d.sees("1 connection closed"), func() error { return d.Script(helpers+`person.scope().close(); true`, nil) })
}

func suspendAndDelete(d *desk) {
	d.do(d.goes("#/entity/archive/messages"), d.press("Suspend"), d.press("Suspend"), d.sees("archive is suspended"), d.press("Close"), d.sees("suspended by an operator"))
	d.do(d.press("Delete"), d.sees("All of them are lost"), d.fill("Type archive to go on", "archive"), d.press("Delete"), d.sees("Error:"), d.press("Close"))
	d.do(d.press("Resume"), d.sees("archive is resumed"), d.seesNot("suspended by an operator"))
	d.do(d.press("Delete"), d.sees("archive holds 5 messages"), d.fill("Type archive to go on", "archive"), d.press("Delete"), d.sees("archive is deleted"), d.press("Close"),
		func() error {
			return d.Until("no archive at the side", `!document.querySelector('bb-tree').innerText.includes('archive')`)
		})
}

func seeTheCluster(d *desk) {
	d.do(d.goes("#/cluster"), d.sees("1 node"), d.sees("Nothing is wrong"), d.sees("6 partitions and the catalog"), d.press("Rebalance leaders…"), d.press("Rebalance"), d.sees("handed over"), d.press("Close"))
	d.do(d.goes("#/"), d.sees("1 to "), d.fill("Search by name", "RAD"), d.sees("1 to 1 of 1"), d.sees("trade"), d.fill("Search by name", "nobody"), d.sees("No entity has such a name"), d.fill("Search by name", ""))
}

func watchCounts(d *desk) {
	d.do(d.goes("#/entity/grouped/settings"), d.counts("active", "2"))
	s, err := d.client().AcceptSessionForQueue(d.t.Context(), "grouped", "s-1", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	all, err := s.ReceiveMessages(d.t.Context(), 2, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range all {
		if err := s.CompleteMessage(d.t.Context(), m, nil); err != nil {
			d.t.Fatal(err)
		}
	}
	_ = s.Close(d.t.Context())
	d.do(d.counts("active", "0"))
}
