package attack

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

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
		payload := amqp.AppendProperties(nil, &amqp.Properties{GroupID: []byte(ids[i])})
		_, err = c.Deliver(s.Handle, nil, amqp.AppendData(payload, []byte(body)))
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
		want := string([]rune(ids[i])) // what is no UTF-8 is replaced, byte by byte
		if err != nil || string(properties.GroupID) != want || m.Body != body {
			a.Errorf("session %.20q: received %q of %q, %v", ids[i], m.Body, properties.GroupID, err)
		}
		_, err = c.Settle(m.ID, amqp.Accepted{})
		return err
	})
}
