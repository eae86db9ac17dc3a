package attack

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// wire returns a text in the place of a name that is no UTF-8, which the client's encoder would not write, and the edit that puts
// its bytes onto the wire. Other names stand for themselves.
func wire(name string) (text string, edit func([]byte) []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	text = strings.Repeat("~", len(name))
	return text, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(text), []byte(name)) }
}

// undecodable demands that the node has ended the connection for what err says the client tried (AMQP 1.0 §1.6.20).
func (a *attack) undecodable(c *raw.Client, what string, err error) {
	a.Helper()
	if !errors.Is(err, raw.ErrEnded) {
		a.Errorf("%s: %v, want the connection to end", what, err)
		return
	}
	f, err := c.Await(raw.Is[*amqp.Close])
	if err != nil {
		a.Errorf("%s: the connection ended without a close: %v", what, err)
		return
	}
	if e := f.P.(*amqp.Close).Error; e == nil || e.Condition != amqp.ConditionDecodeError {
		a.Errorf("%s: closed with %+v", what, e)
	}
}

// addresses attaches to each name, beside each other, on a connection of its own.
func (a *attack) addresses(names []string) {
	a.Helper()
	a.each(len(names), func(i int) error {
		c, err := raw.Dial(a.ctx, a.c.Pick(i), raw.Plain)
		if err != nil {
			return err
		}
		defer c.Close()
		a.sockets.Add(1)
		if text, edit := wire(names[i]); edit != nil {
			c.Edit = edit
			_, err := c.Sender(a.queue + "/" + text)
			a.undecodable(c, fmt.Sprintf("attach to %q", names[i]), err)
			return nil
		}
		for _, address := range []string{names[i], a.queue + "/" + names[i], a.queue + "-topic/Subscriptions/" + names[i]} {
			_, err := c.Sender(address)
			var refused *raw.Refused
			condition := raw.Condition(err)
			switch last := strings.Trim(names[i], "/"); {
			case err == nil && (last == "" && address != a.queue+"-topic/Subscriptions/"+names[i] || last == "$management"):
				continue // the queue itself, or what every entity has
			case condition != "amqp:not-found" && condition != "amqp:not-allowed" && condition != badArgument:
				a.Errorf("attach to %q: %v", address, err)
			case errors.As(err, &refused) && !utf8.ValidString(refused.Cause.Description):
				a.Errorf("attach to %q: the text is no UTF-8: %q", address, refused.Cause.Description)
			}
		}
		s, err := c.Sender(a.queue)
		if err == nil {
			_, err = c.Deliver(s.Handle, nil, amqp.AppendData(nil, []byte("after "+names[i])))
		}
		return err
	})
}

// sessionIDs sends a message to each session and receives it with the same id.
func (a *attack) sessionIDs(body string, ids []string) {
	a.Helper()
	a.each(len(ids), func(i int) error {
		c, err := raw.Dial(a.ctx, a.c.Pick(i), raw.Plain)
		if err != nil {
			return err
		}
		defer c.Close()
		a.sockets.Add(1)
		s, err := c.Sender(a.queue + "-sessions")
		if err != nil {
			return err
		}
		var id string
		id, c.Edit = wire(ids[i])
		payload := amqp.AppendProperties(nil, &amqp.Properties{GroupID: []byte(id)})
		_, err = c.Deliver(s.Handle, nil, amqp.AppendData(payload, []byte(body)))
		if c.Edit != nil {
			if condition := raw.Condition(err); condition != badArgument {
				a.Errorf("a message of session %q: %v", ids[i], err)
			}
			_, err = c.Receiver(a.queue+"-sessions", id)
			a.undecodable(c, fmt.Sprintf("accept session %q", ids[i]), err)
			return nil
		}
		if utf8.RuneCountInString(ids[i]) > 128 {
			if condition := raw.Condition(err); condition != badArgument {
				a.Errorf("a message of session %.20q: %v", ids[i], err)
			}
			return nil
		}
		if err != nil {
			a.Errorf("a message of session %.20q: %v", ids[i], err)
			return nil
		}
		r, err := c.Receiver(a.queue+"-sessions", ids[i])
		if err != nil {
			a.Errorf("accept session %.20q: %v", ids[i], err)
			return nil
		}
		m, err := c.Receive(r.Handle)
		if err != nil {
			return err
		}
		properties, err := m.Parts.ParseProperties()
		if err != nil || string(properties.GroupID) != ids[i] || m.Body != body {
			a.Errorf("session %.20q: received %q of %q, %v", ids[i], m.Body, properties.GroupID, err)
		}
		_, err = c.Settle(m.ID, amqp.Accepted{})
		return err
	})
}
