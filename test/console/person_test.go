package console

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
)

var (
	long     = flag.Bool("long", false, "1,000 entities and a million messages, and what the requests of the console take")
	pictures = flag.Bool("pictures", false, "write the pictures of docs/console.md")
)

var tools Tools

func TestMain(m *testing.M) {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	var err error
	if tools, err = Install(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cancel()
	os.Exit(m.Run())
}

// desk is a person at a browser in front of a node.
type desk struct {
	*Browser
	t    *testing.T
	node *cluster.Node
}

// sit opens the console of a node. What a page may never do fails the test at its end.
func sit(t *testing.T, node *cluster.Node) *desk {
	t.Helper()
	_, ops := node.Doors()
	b, err := Open(t.Context(), tools.Chromium, "http://"+ops)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{b, t, node}
	t.Cleanup(func() {
		for _, wrong := range b.Wrong() {
			t.Error(wrong)
		}
		b.Close()
	})
	d.do(b.Load)
	return d
}

// do does steps, and fails the test with a picture at the first that fails.
func (d *desk) do(steps ...func() error) {
	d.t.Helper()
	if err := Do(steps...); err != nil {
		if png, bad := d.Picture(); bad == nil {
			file := filepath.Join(os.TempDir(), "console-"+strings.ReplaceAll(d.t.Name(), "/", "-")+".png")
			_ = os.WriteFile(file, png, 0o644) // the error is what counts
			d.t.Log("the page:", file)
		}
		d.t.Fatal(err, d.Wrong())
	}
}

func (d *desk) press(name string) func() error { return func() error { return d.Press(name) } }

func (d *desk) fill(label, text string) func() error {
	return func() error { return d.Fill(label, text) }
}

func (d *desk) sees(text string) func() error { return func() error { return d.Sees(text) } }

func (d *desk) seesNot(text string) func() error { return func() error { return d.SeesNot(text) } }

func (d *desk) goes(place string) func() error { return func() error { return d.Go(place) } }

// counts waits until a tile of the entity's page has a number.
func (d *desk) counts(name, n string) func() error {
	return func() error {
		return d.Until(name+" to be "+n, fmt.Sprintf(`document.querySelector('.tiles [data-count=%s]')?.textContent === %q`, name, n))
	}
}

// signIn takes the development key.
func (d *desk) signIn() {
	d.t.Helper()
	d.do(d.press("Sign in with the development key"), d.sees("RootManageSharedAccessKey"))
}

// make creates an entity on its page; settings are pairs of labels and values.
func (d *desk) make(kind, name string, settings ...string) {
	d.t.Helper()
	d.do(d.goes("#/create/"+kind), d.sees("New "+kind), d.fill("Name", name))
	for i := 0; i < len(settings); i += 2 {
		d.do(d.fill(settings[i], settings[i+1]))
	}
	d.do(d.press("Create"), d.sees(name+" is created"))
}

// send sends copies of a body to an entity; fields are pairs.
func (d *desk) send(entity, body, copies string, fields ...string) {
	d.t.Helper()
	d.do(d.goes("#/entity/"+entity+"/send"), d.sees("Application properties"), d.fill("Body", body), d.fill("Copies", copies))
	for i := 0; i < len(fields); i += 2 {
		d.do(d.fill(fields[i], fields[i+1]))
	}
	d.do(d.submit, d.sees(copies+" message"))
}

// submit presses the last button that sends a form: tabs may have the same name.
func (d *desk) submit() error {
	return d.Script(helpers+`[...person.scope().querySelectorAll('button[type=submit]')].filter((e) => person.seen(e)).at(-1).click(); true`, nil)
}

// client is one of the Go SDK, as applications use it beside the console.
func (d *desk) client() *azservicebus.Client {
	d.t.Helper()
	c, err := d.node.Client(false, azservicebus.RetryOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// receive takes messages of a queue, and has verdict decide about each.
func (d *desk) receive(queue string, n int, verdict func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error) *azservicebus.Receiver {
	d.t.Helper()
	r, err := d.client().NewReceiverForQueue(queue, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for n > 0 {
		all, err := r.ReceiveMessages(d.t.Context(), n, nil)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, m := range all {
			if err := verdict(r, m); err != nil {
				d.t.Fatal(err)
			}
		}
		n -= len(all)
	}
	return r
}

func kill(reason string) func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error {
	return func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		said := "it said so"
		return r.DeadLetterMessage(context.Background(), m, &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &said})
	}
}

func keep(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error { return nil }
