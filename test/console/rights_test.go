package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

// What a key may not do is not offered, and refused by the node if a page asks for it all the same.
func TestPagesOfferWhatAKeyMay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "busbar.yaml")
	text := "root-key: SAS_KEY_VALUE\npolicies:\n- {name: sender, primary-key: s, rights: [Send]}\n- {name: listener, primary-key: l, rights: [Listen]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	node, err := cluster.StartSingle(t.Context(), dir, "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	a, err := node.Admin(false)
	if err != nil {
		t.Fatal(err)
	}
	key, other := "a key of orders alone", "another one"
	rule := admin.AuthorizationRule{KeyName: new(string), PrimaryKey: &key, SecondaryKey: &other, AccessRights: []admin.AccessRight{admin.AccessRightManage, admin.AccessRightSend, admin.AccessRightListen}}
	*rule.KeyName = "clerk"
	for name, rules := range map[string][]admin.AuthorizationRule{"orders": {rule}, "bills": nil} {
		if _, err := a.CreateQueue(t.Context(), name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{AuthorizationRules: rules}}); err != nil {
			t.Fatal(err)
		}
	}
	d := sit(t, node)
	for _, c := range []struct {
		name, key string
		place     string
		offered   []string
		not       []string
		asks      string // a path of the operations port that the key does not open
	}{
		{"sender", "s", "#/entity/orders", []string{"Send", "Body"}, []string{"Messages", "Receive", "Dead letters", "Settings", "Suspend", "Delete", "+ Queue", "Connections"}, "/api/entities/orders/messages"},
		{"listener", "l", "#/entity/orders", []string{"Receive", "Lock the next one"}, []string{"Messages", "Send", "Settings", "Suspend", "Delete", "+ Queue"}, "/api/entities"},
		{"clerk", key, "#/entity/orders", []string{"Messages", "Send", "Dead letters", "Settings"}, []string{"Suspend", "Delete", "+ Queue", "Connections"}, "/api/entities/bills/messages"},
		{"clerk", key, "#/cluster", []string{"1 node"}, []string{"Rebalance leaders…", "Drain…"}, "/api/connections"},
	} {
		t.Run(c.name+c.place, func(t *testing.T) {
			d := &desk{d.Browser, t, node}
			d.do(d.fill("Policy", c.name), d.fill("Key", "wrong"), d.press("Sign in"), d.sees("No policy has this name and this key"),
				d.fill("Key", c.key), d.press("Sign in"), d.sees(c.name), d.goes(c.place))
			for _, what := range c.offered {
				d.do(d.sees(what))
			}
			for _, what := range c.not {
				var there bool
				d.do(func() error { return d.Script(helpers+`Boolean(person.button(`+quote(what)+`))`, &there) })
				if there {
					t.Errorf("%s is offered", what)
				}
			}
			var status int
			d.do(func() error {
				return d.Script(fmt.Sprintf(`fetch('/$console/port%s').then((r) => r.status)`, c.asks), &status)
			})
			if status != 401 && status != 403 {
				t.Errorf("%s: %d", c.asks, status)
			}
			d.do(d.press("Sign out"), d.sees("You are signed out"))
		})
	}
	t.Run("a key that is taken away", func(t *testing.T) {
		d := &desk{d.Browser, t, node}
		d.do(d.fill("Key", "Endpoint=sb://localhost;SharedAccessKeyName=clerk;SharedAccessKey="+key+";EntityPath=orders"), d.press("Sign in"), d.sees("clerk on orders"))
		*rule.PrimaryKey = "a new key of orders"
		if _, err := a.UpdateQueue(context.Background(), "orders", admin.QueueProperties{AuthorizationRules: []admin.AuthorizationRule{rule}}, nil); err != nil {
			t.Fatal(err)
		}
		d.do(d.sees("The session is over"))
	})
}

// The keyboard is enough: sign in, create a queue, and find it again.
func TestTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	node, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	d := sit(t, node)
	reach := func(name string) func() error {
		return func() error {
			for range 60 {
				if at, err := d.Focus(); err != nil || strings.HasPrefix(at, name) {
					return err
				}
				if err := d.Tab(1); err != nil {
					return err
				}
			}
			return fmt.Errorf("the tabulator does not come to %s", name)
		}
	}
	enter := func() error { return d.Keys("\r") }
	typed := func(text string) func() error { return func() error { return d.Keys(text) } }
	d.do(d.sees("Sign in with the development key"), reach("Sign in with the development key"), enter, d.sees("There is no queue and no topic yet"),
		reach("New queue"), enter, d.sees("New queue"), reach("Name"), typed("by-hand\r"), d.sees("by-hand is created"),
		typed("/"), typed("by-h"), func() error { return d.Until("the search", `document.activeElement.type === 'search'`) },
		func() error {
			return d.Until("what is found", `document.querySelectorAll('bb-tree .items li').length === 1`)
		}, reach("▤Queueby-hand"), enter, d.sees("Dead letters"),
		reach("Delete"), enter, d.sees("All of them are lost"), reach("Type by-hand to go on"), typed("by-hand"), reach("Delete"), enter, d.sees("by-hand is deleted"), reach("Close"), enter,
		d.seesNot("by-hand is deleted."))
}
