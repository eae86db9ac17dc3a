package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

// bad are values that no field of that label takes.
type bad struct {
	label  string
	values []string
}

// Bad input in a field gets an error on the page, and changes nothing.
func TestBadInputGetsAnError(t *testing.T) {
	t.Parallel()
	node, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	d := sit(t, node)
	d.signIn()
	d.make("queue", "orders")
	d.make("topic", "trade")
	long := strings.Repeat("x", 1025)
	settings := []bad{
		{"Maximum deliveries", []string{"abc", "0", "-1", "2.5", "99999999999"}}, {"Lock duration", []string{"a week", "1s", "10d", "-5s"}},
		{"Time to live of messages", []string{"soon", "0s"}}, {"Window of duplicates", []string{"1s", "8d"}}, {"Forward messages to", []string{"nowhere", long}},
		{"Forward dead letters to", []string{"nowhere"}}, {"Maximum size, MB", []string{"7", "x", "99999999"}}, {"Maximum message, KiB", []string{"0", "999999999"}},
		{"Deleted when idle for", []string{"1m", "never"}}, {"Note of users", []string{long}}, {"Records that stay", []string{"9999999", "many"}}, {"Records stay for", []string{"a while"}},
		{"Rest after a failed delivery", []string{"8d", "?"}}, {"Longest rest", []string{"8d"}}, {"Each rest is longer by, percent", []string{"100000", "x"}}, {"Less a random part of, percent", []string{"101"}},
	}
	names := bad{"Name", []string{"", " ", "a b", "a?b", "a#b", "a%2fb", "ä", "/", "..", strings.Repeat("x", 261), "orders"}}
	t.Run("a new queue", func(t *testing.T) {
		d := &desk{d.Browser, t, node}
		d.do(d.goes("#/create/queue"), d.sees("New queue"), d.fill("Name", "bad"))
		d.refuses("Create", append(settings, names)...)
		if d.exists("bad") {
			t.Error("the queue was made")
		}
	})
	t.Run("settings", func(t *testing.T) {
		d := &desk{d.Browser, t, node}
		d.do(d.goes("#/entity/orders/settings"), d.sees("Maximum deliveries"))
		for _, b := range settings {
			if !strings.HasPrefix(b.label, "Forward") { // whose targets are looked for when it is saved
				d.refuses("Review changes", b)
			}
		}
		d.do(d.fill("Forward messages to", "nowhere"), d.press("Review changes"), d.press("Save"), d.sees("destination entity does not exist"), d.press("Cancel"))
	})
	t.Run("a new subscription", func(t *testing.T) {
		d := &desk{d.Browser, t, node}
		d.do(d.goes("#/create/subscription/trade"), d.sees("New subscription of trade"), d.fill("Name", "bad"))
		d.refuses("Create", bad{"Name", []string{"", "a b", strings.Repeat("x", 51)}}, bad{"Lock duration", []string{"1s"}}, bad{"Forward messages to", []string{"nowhere"}})
	})
	t.Run("a message", func(t *testing.T) {
		d := &desk{d.Browser, t, node}
		d.do(d.goes("#/entity/orders/send"), d.sees("Application properties"), d.press("Add a property"), d.fill("Name of the property", "n"), d.fill("Type of the property", "number"),
			d.fill("Value of the property", "1"), d.fill("Body", "?"))
		d.refuses("", bad{"Value of the property", []string{"", "one", "Infinity"}}, bad{"Name of the property", []string{"", " "}}, bad{"Copies", []string{"0", "1001", "", "1.5"}},
			bad{"Time to live, seconds", []string{"x", "0", "-1"}}, bad{"Message id", []string{strings.Repeat("x", 129)}}, bad{"Session", []string{strings.Repeat("x", 129)}},
			bad{"Content type", []string{"ä"}}, bad{"The body is base64 of bytes", []string{"true"}})
		d.do(d.fill("Type of the property", "boolean"))
		d.refuses("", bad{"Value of the property", []string{"maybe", "1"}})
	})
	t.Run("what is looked for", func(t *testing.T) {
		d := &desk{d.Browser, t, node}
		d.do(d.goes("#/entity/orders/messages"), d.sees("There is no such message"))
		d.refuses("Show", bad{"From number", []string{"x", "-1", "1.5", "99999999999999999999"}}, bad{"Filter, SQL of rules", []string{"n >", "'", "SELECT 1", strings.Repeat("a = 1 AND ", 200) + "b"}})
	})
	if !d.exists("orders") {
		t.Error("the queue is gone")
	}
}

// refuses puts each value into its field, presses a button, and waits for an error; "" is the button that sends the form.
func (d *desk) refuses(press string, all ...bad) {
	d.t.Helper()
	for _, b := range all {
		var was string
		d.do(func() error {
			return d.Script(helpers+`(() => { const e = person.field(`+quote(b.label)+`); return e.type === 'checkbox' ? String(e.checked) : e.value; })()`, &was)
		})
		for _, value := range b.values {
			d.do(func() error {
				return d.Script(`document.querySelectorAll('main .problem').forEach((e) => e.remove()); true`, nil)
			}, d.fill(b.label, value))
			if press == "" {
				d.do(d.submit)
			} else {
				d.do(d.press(press))
			}
			if err := d.Until(fmt.Sprintf("an error for %s = %.40q", b.label, value), `document.querySelector('main .problem')?.innerText.length > 12`); err != nil {
				d.t.Error(err)
				return
			}
		}
		d.do(d.fill(b.label, was))
	}
}

// exists reports whether there is an entity.
func (d *desk) exists(name string) (there bool) {
	d.t.Helper()
	d.do(func() error {
		return d.Script(`fetch('/$console/port/api/entities?path=`+name+`').then((r) => r.json()).then((v) => !v.entities[0].missing)`, &there)
	})
	return there
}
