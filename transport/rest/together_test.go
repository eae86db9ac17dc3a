package rest

import (
	"net/http"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// S-262: what an update does not say stays as it is by then, also if another update has just come ahead of it. A key that
// was taken away does not come back, and an option that was set stays.
func TestAnUpdateTakesBackNothingOfAnotherOne(t *testing.T) {
	const rules = `<AuthorizationRules><AuthorizationRule><KeyName>old</KeyName><Rights><AccessRights xmlns="` + connectSpace +
		`">Send</AccessRights></Rights></AuthorizationRule></AuthorizationRules>`
	h := newHouse(t)
	put := func(path, kind, elements string) {
		t.Helper()
		if status, text := h.do(t, "PUT", path, entryBody(kind, elements), "If-Match", "*"); status != http.StatusOK {
			t.Errorf("update %s: %d %s", path, status, text)
		}
	}
	h.create(t, "q", rules)
	h.meanwhile = func() { put("/q", "QueueDescription", "<AuthorizationRules></AuthorizationRules>") }
	put("/q", "QueueDescription", "<MaxDeliveryCount>3</MaxDeliveryCount>")
	if d := h.entities["q"]; len(d.AuthRules) != 0 || d.MaxDelivery != 3 {
		t.Errorf("a key that was taken away is there: %+v, %d deliveries", d.AuthRules, d.MaxDelivery)
	}
	h.meanwhile = func() {
		put("/q", "QueueDescription", `<Options xmlns="`+optionSpace+`"><NoDeadLetter>true</NoDeadLetter></Options>`)
	}
	put("/q", "QueueDescription", "<MaxDeliveryCount>4</MaxDeliveryCount>")
	if d := h.entities["q"]; !d.NoDeadLetter || d.MaxDelivery != 4 {
		t.Errorf("an option that was set is gone: %v, %d deliveries", d.NoDeadLetter, d.MaxDelivery)
	}
}

// The options of an operator are a part of a description, and the change of a user beside them stays.
func TestOptionsTakeBackNothingOfAnUpdate(t *testing.T) {
	i := newInspector(t)
	made, err := i.Create(t.Context(), fsm.Descriptor{Kind: fsm.Queue, Name: "orders", MaxDelivery: 10})
	if err != nil {
		t.Fatal(err)
	}
	i.world.meanwhile = func() {
		d := *made
		d.Status, d.AuthRules = fsm.SendDisabled, []fsm.AuthRule{{Name: "new", Send: true}}
		if _, err := i.Update(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	var v OptionsView
	code := i.ask("PATCH", "/api/entities/orders/options", `{"noDeadLetter":true}`, &v)
	if d := i.world.entities["orders"]; code != http.StatusOK || !d.NoDeadLetter || d.Status != fsm.SendDisabled || len(d.AuthRules) != 1 {
		t.Errorf("%d: %+v", code, d)
	}
}

// An update that always meets another one is told so at last, and changes nothing.
func TestAnUpdateThatAlwaysMeetsAnotherOne(t *testing.T) {
	h := newHouse(t)
	h.create(t, "q", "")
	var other func()
	other = func() {
		h.entities["q"].Version++
		h.meanwhile = other
	}
	other()
	status, text := h.do(t, "PUT", "/q", queueBody("<MaxDeliveryCount>3</MaxDeliveryCount>"), "If-Match", "*")
	if d := h.entities["q"]; status != http.StatusConflict || d.MaxDelivery != 10 || d.Status != fsm.Active {
		t.Errorf("got %d %s, %d deliveries", status, text, d.MaxDelivery)
	}
}
