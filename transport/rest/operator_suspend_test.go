package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// Suspend does what the catalog does (fsm/catalog).
func (s *shelf) Suspend(_ context.Context, id fsm.EntityID, to fsm.Status) (*fsm.Descriptor, error) {
	made, err := s.world.change(id, func(d *fsm.Descriptor) error {
		d.Restore()
		d.Suspended, d.UserStatus, d.Version = to != fsm.Active, d.Status, d.Version+1
		d.Status = d.Status.With(to)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return made, s.put(made)
}

// S-256: what an operator suspends and lifts, and how that is answered.
func TestOperatorsSuspendEntities(t *testing.T) {
	i := newInspector(t)
	d := i.queue("a/orders", spread, func(d *fsm.Descriptor) { d.Status = fsm.SendDisabled })
	for _, tc := range []struct {
		act  string
		want StatusView
	}{
		{"resume", StatusView{"SendDisabled", false, "SendDisabled"}},
		{"suspend?status=ReceiveDisabled", StatusView{"Disabled", true, "SendDisabled"}},
		{"suspend?status=senddisabled", StatusView{"SendDisabled", true, "SendDisabled"}},
		{"suspend", StatusView{"Disabled", true, "SendDisabled"}},
		{"resume", StatusView{"SendDisabled", false, "SendDisabled"}},
	} {
		var got StatusView
		code := i.ask("POST", "/api/entities/a/orders/"+tc.act, "", &got)
		if code != http.StatusOK || got != tc.want {
			t.Errorf("%s: %d %+v", tc.act, code, got)
		}
		var shown struct{ Status StatusView }
		if code := i.ask("GET", "/api/entities/a/orders/description", "", &shown); code != http.StatusOK || shown.Status != tc.want {
			t.Errorf("description after %s: %d %+v", tc.act, code, shown)
		}
		for share := range d.Partitions {
			out, _ := i.Propose(t.Context(), fsm.Key{Entity: d.ID, Share: uint16(share)}, &fsm.Lock{Max: 1})
			want := fsm.None
			if tc.want.Status == "Disabled" {
				want = fsm.EntityDisabled
			}
			if out.Refusal != want {
				t.Errorf("%s: a receive at share %d is answered %s", tc.act, share, out.Refusal)
			}
		}
	}
}

// S-256: whose user it is meant to stop must not lift it with a key of the entity.
func TestSuspensionsTakeManageOnTheNamespace(t *testing.T) {
	i := newInspector(t)
	i.queue("orders")
	err := i.api.deps.Policies.Replace("orders", auth.Policy{Name: "owner", Primary: "ok", Rights: auth.All})
	if err != nil {
		t.Fatal(err)
	}
	const suspend, resume = "/api/entities/orders/suspend", "/api/entities/orders/resume"
	for name, tc := range map[string]struct {
		method, target, token string
		want                  int
	}{
		"no token":                        {"POST", suspend, "", 401},
		"a key that listens":              {"POST", suspend, token("listener", "k", "https://host.test/"), 401},
		"Manage of the entity, suspend":   {"POST", suspend, token("owner", "ok", "https://host.test/orders"), 401},
		"Manage of the entity, resume":    {"POST", resume, token("owner", "ok", "https://host.test/orders"), 401},
		"Manage of the entity looks":      {"GET", "/api/entities/orders/description", token("owner", "ok", "https://host.test/orders"), 200},
		"the namespace's, for the entity": {"POST", resume, token(root, rootKey, "https://host.test/orders"), 200},
		"another method":                  {"GET", suspend, token(root, rootKey, "https://host.test/"), 405},
		"an unknown status":               {"POST", suspend + "?status=Off", token(root, rootKey, "https://host.test/"), 400},
		"Active":                          {"POST", suspend + "?status=Active", token(root, rootKey, "https://host.test/"), 400},
		"an unknown parameter":            {"POST", suspend + "?state=Disabled", token(root, rootKey, "https://host.test/"), 400},
		"a status to resume to":           {"POST", resume + "?status=Active", token(root, rootKey, "https://host.test/"), 400},
		"dead letters":                    {"POST", "/api/entities/orders/$DeadLetterQueue/suspend", token(root, rootKey, "https://host.test/"), 400},
		"no such entity":                  {"POST", "/api/entities/none/suspend", token(root, rootKey, "https://host.test/"), 404},
	} {
		var answer json.RawMessage
		if code := i.ask(tc.method, tc.target, "", &answer, "Authorization", tc.token); code != tc.want {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if code := i.ask("POST", suspend, "", nil, "Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site"); code != 403 {
		t.Errorf("from another site: %d", code)
	}
	i.api.deps.Suspend = func(context.Context, fsm.EntityID, fsm.Status) (*fsm.Descriptor, error) {
		return nil, fsm.ErrUnavailable
	}
	if code := i.ask("POST", suspend, "", nil); code != http.StatusServiceUnavailable {
		t.Errorf("without a leader: %d", code)
	}
}
