package scenario

import (
	"testing"
	"time"
)

// letter is what an application keeps of a message until it knows that the broker has it.
type letter struct {
	text      string // and the id
	state     string // Ready, InFlight, Sent, Failed
	deliverBy time.Time
}

// flush sends what is not done, as an application does after each start. It is killed when the broker
// has taken the message that killedBehind names, before it has written that down.
func flush(c *client, box []*letter, queue, killedBehind string) {
	s := c.sender(queue)
	for _, l := range box {
		switch {
		case l.state == "Sent" || l.state == "Failed":
			continue
		case time.Now().After(l.deliverBy):
			l.state = "Failed"
			continue
		}
		l.state = "InFlight"
		s.send(message(l.text))
		if l.text == killedBehind {
			c.die()
			return
		}
		l.state = "Sent"
	}
}

// T-277; S-278
func TestT277AnOutboxMaySendAgain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		queue string
		left  []string
	}{
		{"with duplicate detection once", "detecting", []string{"one", "two", "four"}},
		{"without it twice", "plain", []string{"one", "two", "two", "four"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("detecting", duplicates)
				b.queue("plain")
				now := time.Now()
				box := []*letter{
					{"one", "Ready", now.Add(time.Hour)}, {"two", "Ready", now.Add(time.Hour)},
					{"three", "Ready", now.Add(time.Minute)}, {"four", "Ready", now.Add(time.Hour)},
				}
				states := func() (all []string) {
					for _, l := range box {
						all = append(all, l.state)
					}
					return all
				}
				flush(b.clientAt(0), box, tc.queue, "two")
				wantAll(b, "when it was killed", states(), "Sent", "InFlight", "Ready", "Ready")
				b.pass(2 * time.Minute) // inside the window, behind what "three" has
				flush(b.clientAt(1), box, tc.queue, "")
				wantAll(b, "after a restart", states(), "Sent", "Sent", "Failed", "Sent")
				wantAll(b, "stored", texts(b.client().peekAll(tc.queue)), tc.left...)
			})
		})
	}
}
