package console

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

// People sign in at an identity provider, do what its roles let them, are offered nothing else, and sign out. The provider
// changes its key between them.
func TestPeopleSignInAtAProvider(t *testing.T) {
	t.Parallel()
	p, err := NewProvider(map[string][]string{"Ada": {"broker-admin"}, "Bob": {"order-desk"}, "Eve": {"visitor"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "busbar.yaml"), filepath.Join(dir, "secret")
	text := fmt.Sprintf(`root-key: SAS_KEY_VALUE
issuers:
- name: %s
  audiences: [%s]
  grants:
  - {claim: roles, value: broker-admin, rights: [Manage]}
  - {claim: roles, value: order-desk, entity: Orders, rights: [Send, Listen]}
  - {claim: roles, value: order-desk, entity: bills, rights: [Manage]}
  sign-in: {client-id: %s, client-secret-file: %s, scopes: [openid, %s], label: Test House}
`, p.URL, audience, providerClient, secret, providerScope)
	for name, content := range map[string]string{file: text, secret: providerSecret + "\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node, err := cluster.StartSingle(t.Context(), dir, "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	_, ops := node.Doors()
	p.Register("http://" + ops + "/api/console/signed-in")
	d := sit(t, node)
	d.Meet(p.URL)
	person := func(name string) []func() error {
		return []func() error{d.press("Sign in at Test House"), d.sees("Who are you?"), d.press(name)}
	}
	task := func(name string, do func(*desk)) {
		if !t.Failed() {
			t.Run(name, func(t *testing.T) { do(&desk{d.Browser, t, node}) })
		}
	}
	task("one who may do all", func(d *desk) {
		d.do(append(person("Ada"), d.sees("Ada (Listen, Send, Manage)"), d.sees("There is no queue and no topic yet"))...)
		for _, name := range []string{"orders", "bills", "secrets"} {
			d.make("queue", name)
		}
		d.send("orders", "for Bob", "3")
		d.do(d.goes("#/entity/orders/messages"), d.sees("3 messages shown"))
		d.do(d.Load, d.sees("Ada (Listen, Send, Manage)")) // the session outlives the page
		d.do(d.delays, d.press("Sign out"), d.sees("You are signed out"), d.refused, d.late, d.ends, d.sees("You are signed out"))
		d.do(append(person("Ada"), d.sees("Ada (Listen, Send, Manage)"))...)
		dev := []func() error{d.press("Sign in with the development key"), d.sees("RootManageSharedAccessKey (Listen, Send, Manage)")}
		d.do(slices.Concat([]func() error{d.delays, d.press("Sign out"), d.sees("You are signed out"), d.refused}, dev, []func() error{d.late, dev[1]})...)
		d.do(slices.Concat([]func() error{d.press("Sign out"), d.sees("You are signed out"), d.unheard, d.refused}, dev, []func() error{d.late, dev[1]})...)
		d.do(d.press("Sign out"), d.sees("You are signed out"))
		d.do(append(person("Ada"), d.sees("Ada (Listen, Send, Manage)"))...)
		d.do(d.press("Sign out"), d.sees("You are signed out"), d.press("Sign out at the identity provider, too"), d.sees("Signed out of "+providerClient))
		if p.Left() != 1 {
			d.t.Errorf("%d sign-outs", p.Left())
		}
		d.do(d.Load, d.sees("Test House"))
	})
	task("one who may little, by another key", func(d *desk) {
		p.Rotate()
		d.do(append(person("Bob"), d.sees("Bob (Listen, Send on orders; Listen, Send, Manage on bills)"), d.sees("You may not list entities"))...)
		d.offers("#/entity/orders", []string{"Send", "Receive"}, []string{"Messages", "Dead letters", "Settings", "Suspend", "Delete", "+ Queue", "Connections"})
		d.do(d.goes("#/entity/orders/receive"), d.press("Lock the next one"), d.sees("Message 1"), d.press("Complete"), d.sees("The message is completed"))
		d.offers("#/entity/bills", []string{"Send", "Receive", "Messages", "Dead letters", "Settings"}, []string{"Suspend", "Delete", "+ Queue", "Connections"})
		d.offers("#/entity/secrets", nil, []string{"Send", "Receive", "Messages", "Dead letters", "Settings", "Suspend", "Delete"})
		for path, want := range map[string]int{"/api/entities/bills/messages": 200, "/api/entities/orders/messages": 401, "/api/entities/secrets/messages": 401, "/api/connections": 403} {
			var status int
			d.do(func() error {
				return d.Script(fmt.Sprintf(`fetch('/$console/port%s').then((r) => r.status)`, path), &status)
			})
			if status != want {
				d.t.Errorf("%s: %d, want %d", path, status, want)
			}
		}
		d.do(d.press("Sign out"), d.sees("You are signed out"))
	})
	task("one who may nothing", func(d *desk) {
		d.do(append(person("Eve"), d.sees("You are not signed in"), d.sees("signed you in as Eve, and you have no right here."), d.sees("Ask who runs this node for a grant, and sign in again."),
			d.press("Back to the sign-in page"), d.sees("Access policy"))...)
	})
	task("one who says no", func(d *desk) {
		d.do(append(person("Deny"), d.sees("refused (access_denied: somebody pressed Deny)."), d.sees("Begin again and consent"), d.press("Back to the sign-in page"), d.sees("Access policy"))...)
	})
	task("one whose provider is gone", func(d *desk) {
		p.Close()
		// What the node knows of a provider is fresh for five seconds; then it asks, and says that nobody answers.
		d.do(func() error {
			return d.Until("that the node finds the provider gone", `fetch('/$console/sign-in', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '`+
				fmt.Sprintf("{%q:%q}", "issuer", p.URL)+`' }).then((r) => r.status === 502)`)
		}, d.press("Sign in at Test House"), d.sees("does not answer as one does: dial tcp"), d.sees("or sign in with the key of a policy"))
		d.signIn() // by the key, all the same
	})
}

// delays begins a request of the page. The request reaches the node when refused is called, and its answer reaches the
// page when late is called.
func (d *desk) delays() error {
	return d.holds("import('/$console/pages/api.js').then((api) => api.look('orders').catch(() => {}))")
}

// unheard has the page ask for a stream of events, be refused, and ask for its session: a request as that of delays.
func (d *desk) unheard() error {
	return d.holds("import('/$console/pages/live.js').then((live) => live.watch({ cluster: true }, () => {}))")
}

// holds runs a script that begins a request, and keeps the request from the node until refused is called.
func (d *desk) holds(script string) error {
	if err := d.Script(`(() => {
  const ask = window.fetch;
  window.refused = null;
  window.fetch = (...what) => {
    window.fetch = ask;
    return new Promise((answer) => {
      window.refused = async () => {
        const a = await ask(...what);
        window.late = () => answer(a);
        return a.headers.get('Busbar-Console') === 'signed-out' || (await a.clone().json()).signedIn === false;
      };
    });
  };
  `+script+`;
  return true;
})()`, nil); err != nil {
		return err
	}
	return d.Until("a request", "Boolean(window.refused)")
}

// refused has the node answer the request: the session is over.
func (d *desk) refused() error {
	var over bool
	if err := d.Script(`window.refused()`, &over); err != nil || !over {
		return fmt.Errorf("over: %t, %w", over, err)
	}
	return nil
}

// late lets the answer come, and the page do with it what it does.
func (d *desk) late() error {
	return d.Script(`window.late(); new Promise((done) => setTimeout(() => done(true), 50))`, nil)
}

// ends is what the page does when it finds late that its stream of events has ended with the session.
func (d *desk) ends() error {
	return d.Script(`import('/$console/pages/api.js').then((api) => { api.over(api.turn()); return true; })`, nil)
}

// offers checks what a page has buttons and links for.
func (d *desk) offers(place string, offered, not []string) {
	d.t.Helper()
	d.do(d.goes("#/nowhere"), d.goes(place), d.sees("Entities"))
	if offered == nil {
		d.do(d.sees("You may do nothing here"))
	}
	for _, what := range offered {
		d.do(func() error { return d.Until(what+" at "+place, "Boolean(person.button("+quote(what)+"))") })
	}
	for _, what := range not {
		var there bool
		d.do(func() error { return d.Script(helpers+`Boolean(person.button(`+quote(what)+`))`, &there) })
		if there {
			d.t.Errorf("%s is offered at %s", what, place)
		}
	}
}
