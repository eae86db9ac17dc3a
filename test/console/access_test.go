package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
)

// show is a page that is judged, and shown in docs/console.md if it has a picture.
type show struct {
	picture string
	place   string
	sees    string
	steps   func(*desk)
}

// shows are all pages, with the dialogs that have a form of their own.
var shows = []show{
	{"entities", "#/", "1 to ", nil},
	{"", "#/create/queue", "New queue", nil},
	{"", "#/create/topic", "New topic", nil},
	{"", "#/create/subscription/trade", "New subscription", nil},
	{"messages", "#/entity/orders/messages", "shown", func(d *desk) { d.do(d.press("8"), d.sees("Body, ")) }},
	{"", "#/entity/orders/messages", "shown", func(d *desk) { d.do(d.press("Purge…"), d.sees("to go on")) }},
	{"send", "#/entity/orders/send", "Application properties", func(d *desk) { d.do(d.press("Add a property")) }},
	{"dead-letters", "#/entity/orders/dead", "dead letters", nil},
	{"", "#/entity/orders/dead", "5 messages shown", func(d *desk) {
		d.do(func() error {
			return d.Script(`document.querySelector('bb-dead tbody button.link').click(); true`, nil)
		}, d.press("Edit and resend…"), d.sees("new number"))
	}},
	{"", "#/entity/orders/receive", "Lock the next one", nil},
	{"locks", "#/entity/orders/locks", "127.0.0.1", nil},
	{"", "#/entity/orders/history", "Refresh", nil},
	{"settings", "#/entity/orders/settings", "Maximum deliveries", func(d *desk) {
		d.do(d.fill("Maximum deliveries", "3"), d.fill("Lock duration", "45s"), d.press("Review changes"), d.sees("Will be"))
	}},
	{"sessions", "#/entity/grouped/sessions", "s-1", func(d *desk) { d.do(d.press("State of session s-1"), d.sees("Save")) }},
	{"", "#/entity/trade/subscriptions", "eu", nil},
	{"rules", "#/entity/trade%2FSubscriptions%2Feu/rules", "cheap", nil},
	{"", "#/entity/trade%2FSubscriptions%2Feu/rules", "cheap", func(d *desk) { d.do(d.press("Edit rule cheap"), d.sees("Kind of filter")) }},
	{"cluster", "#/cluster", "Nothing is wrong", nil},
	{"connections", "#/connections", "MSGolangClient", nil},
}

// No page has what axe-core calls a violation, in light or dark. With -pictures each is written to docs/images.
func TestPagesAreAccessible(t *testing.T) {
	t.Parallel()
	node, err := cluster.StartSingle(t.Context(), t.TempDir(), "--node-id", "n1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	axe, err := os.ReadFile(tools.Axe)
	if err != nil {
		t.Fatal(err)
	}
	d := sit(t, node)
	d.do(d.sees("Access policy"))
	for _, scheme := range []string{"light", "dark"} {
		d.do(func() error { return d.Scheme(scheme) })
		d.judge("sign in, "+scheme, string(axe))
	}
	d.keepPicture("sign-in", "light")
	d.signIn()
	fillHouse(d)
	for _, s := range shows {
		for _, scheme := range []string{"light", "dark"} {
			d.do(func() error { return d.Scheme(scheme) }, d.goes("#/nowhere"), d.goes(s.place), func() error {
				return d.Until("the page "+s.place, "Boolean(document.querySelector('main h1')) && document.querySelector('main').innerText.includes("+quote(s.sees)+")")
			})
			if s.steps != nil {
				s.steps(d)
			}
			d.judge(s.place+", "+scheme, string(axe))
			if s.picture != "" {
				d.keepPicture(s.picture, scheme)
			}
			d.do(func() error {
				return d.Script(`document.querySelectorAll('dialog').forEach((b) => b.close()); true`, nil)
			})
		}
	}
}

// fillHouse makes what the pages show.
func fillHouse(d *desk) {
	d.t.Helper()
	d.make("queue", "orders", "Lock duration", "5m")
	d.make("queue", "grouped", "Requires sessions", "true")
	for _, name := range []string{"archive", "billing", "mail-out"} {
		d.make("queue", name)
	}
	d.make("topic", "trade")
	d.do(d.press("New subscription"), d.sees("New subscription of trade"), d.fill("Name", "eu"), d.press("Create"), d.sees("trade/Subscriptions/eu is created"), d.press("Rules"), d.sees("$Default"))
	d.do(d.press("New rule…"), d.fill("Name", "cheap"), d.fill("SQL filter", "price < 10 AND region = 'eu'"), d.fill("Action", "SET cheap = TRUE"), d.press("Save"), d.sees("The rule cheap is saved"))
	d.send("orders", `{"order": 17, "customer": "ACME", "items": [{"sku": "bolt-8", "count": 250}]}`, "8", "Subject", "order", "Content type", "application/json")
	d.receive("orders", 3, kill("PaymentRefused"))
	d.send("orders", `{"order": 18, "customer": "Globex", "items": []}`, "5", "Subject", "order", "Content type", "application/json")
	d.receive("orders", 2, kill("NoItems"))
	d.receive("orders", 2, keep)
	d.send("grouped", "one", "3", "Session", "s-1")
	d.send("grouped", "two", "2", "Session", "s-2")
	d.do(d.goes("#/entity/grouped/sessions"), d.press("State of session s-1"), d.fill("State (none is set)", `{"step": 3, "of": 7}`), d.press("Save"), d.sees("The state is saved"))
	d.send("trade", "sold", "4", "Subject", "sale")
	if !*pictures {
		return
	}
	d.do(d.goes("#/"), d.sees("1 to ")) // where lines grow, for the pictures
	client := d.client()
	for i := range 40 {
		for queue, n := range map[string]int{"billing": i % 7, "mail-out": 5 - i/8} {
			s, err := client.NewSender(queue, nil)
			if err != nil {
				d.t.Fatal(err)
			}
			for range n {
				if err := s.SendMessage(d.t.Context(), &azservicebus.Message{Body: []byte("x")}, nil); err != nil {
					d.t.Fatal(err)
				}
			}
			_ = s.Close(d.t.Context())
			if queue == "billing" && i%7 == 6 {
				r := d.receive(queue, 15, func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
					return r.CompleteMessage(d.t.Context(), m, nil)
				})
				_ = r.Close(d.t.Context())
			}
		}
		time.Sleep(2 * time.Second)
	}
}

// judge runs axe-core on the page.
func (d *desk) judge(what, axe string) {
	d.t.Helper()
	var text string
	d.do(func() error {
		return d.Script(axe+`;axe.run(document, { resultTypes: ['violations'] }).then((r) => JSON.stringify(r.violations.map((v) => ({ id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + ' | ' + (n.any[0]?.message ?? n.failureSummary)) }))))`, &text)
	})
	var found []struct {
		ID, Help string
		Nodes    []string
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		d.t.Fatal(err)
	}
	for _, v := range found {
		d.t.Errorf("%s: %s: %s\n  %s", what, v.ID, v.Help, strings.Join(v.Nodes, "\n  "))
	}
}

// keepPicture writes what the window shows.
func (d *desk) keepPicture(name, scheme string) {
	d.t.Helper()
	if !*pictures {
		return
	}
	if scheme == "dark" && name != "messages" {
		return
	}
	if scheme == "dark" {
		name += "-dark"
	}
	d.do(func() error {
		return d.Script(`document.querySelector('#said')?.classList.remove('fresh'); new Promise((r) => setTimeout(() => r(true), 400))`, nil)
	})
	png, err := d.Picture()
	if err == nil {
		png, err = Small(png)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join("..", "..", "docs", "images", "console-"+name+".png"), png, 0o644)
	}
	if err != nil {
		d.t.Error(fmt.Errorf("picture %s: %w", name, err))
	}
}
