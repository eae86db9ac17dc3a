package catalog

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// S-256: what is forbidden is what either of the two forbids, and the user's status comes back.
func TestASuspensionIsAddedToTheStatusOfTheUser(t *testing.T) {
	const a, d, sd, rd = fsm.Active, fsm.Disabled, fsm.SendDisabled, fsm.ReceiveDisabled
	for _, tc := range []struct{ user, operator, want fsm.Status }{
		{a, d, d}, {a, sd, sd}, {a, rd, rd}, {d, d, d}, {d, sd, d}, {d, rd, d},
		{sd, d, d}, {sd, sd, sd}, {sd, rd, d}, {rd, d, d}, {rd, sd, d}, {rd, rd, rd},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			w := newWorld(t)
			q := queue("q")
			q.Status = tc.user
			made := w.must(Change{Create: q})
			got := w.must(Change{Suspend: &Suspension{made.ID, tc.operator}})
			if !got.Suspended || got.Status != tc.want || got.UserStatus != tc.user || got.Version <= made.Version {
				t.Errorf("suspended: %+v", got)
			}
			got = w.must(Change{Suspend: &Suspension{made.ID, fsm.SendDisabled}}) // another one in its place
			if want := tc.user.With(fsm.SendDisabled); !got.Suspended || got.Status != want || got.UserStatus != tc.user {
				t.Errorf("suspended otherwise: %+v", got)
			}
			back := w.must(Change{Suspend: &Suspension{made.ID, fsm.Active}})
			if back.Suspended || back.Status != tc.user || back.UserStatus != fsm.Active || back.Version <= got.Version {
				t.Errorf("lifted: %+v", back)
			}
			if again := w.must(Change{Suspend: &Suspension{made.ID, fsm.Active}}); again.Version != back.Version {
				t.Errorf("lifted twice: %+v", again)
			}
		})
	}
}

// S-256
func TestUsersNeitherChangeNorDeleteWhatIsSuspended(t *testing.T) {
	w := newWorld(t)
	list := w.topicWith("a", "b")
	topic, sub := list[0], list[1]
	idle := queue("idle")
	idle.AutoDeleteOnIdle = 300_000
	idle = w.must(Change{Create: idle})
	idle = w.must(Change{Suspend: &Suspension{idle.ID, fsm.Disabled}})
	w.must(Change{Suspend: &Suspension{sub.ID, fsm.ReceiveDisabled}})
	up := subscription(sub.Name)
	w.refused(Change{Update: up}, fsm.Unauthorized)
	w.refused(Change{Delete: &Deletion{ID: sub.ID}}, fsm.Unauthorized)
	w.refused(Change{Delete: &Deletion{ID: topic.ID}}, fsm.Unauthorized) // it would go with its topic
	w.refused(Change{DeleteIfIdle: &IdleDeletion{ID: idle.ID, Version: idle.Version}}, fsm.Unauthorized)
	w.must(Change{Update: &fsm.Descriptor{Kind: fsm.Topic, Name: "t", UserMetadata: "of its own"}})
	w.must(Change{Delete: &Deletion{ID: list[2].ID}})
	if got := w.must(Change{PutRule: &RulePut{Entity: sub.ID, Rule: sqlRule("r", "a = 1")}}); !got.Suspended ||
		got.Status != fsm.ReceiveDisabled || len(got.Rules) != 2 {
		t.Errorf("with another rule: %+v", got)
	}
	w.must(Change{Suspend: &Suspension{sub.ID, fsm.Active}})
	if got := w.must(Change{Update: up}); got.Suspended || got.Status != fsm.Active {
		t.Errorf("changed: %+v", got)
	}
	w.must(Change{Delete: &Deletion{ID: topic.ID}})
	w.refused(Change{Suspend: &Suspension{sub.ID, fsm.Disabled}}, fsm.EntityNotFound)
	w.refused(Change{Suspend: &Suspension{idle.ID, fsm.ReceiveDisabled + 1}}, fsm.InvalidArgument)
}

// S-256: nobody but an operator sets the mark, in whatever description it comes.
func TestADescriptionDoesNotSuspend(t *testing.T) {
	w := newWorld(t)
	q := queue("q")
	q.Suspended, q.Status, q.UserStatus = true, fsm.Disabled, fsm.SendDisabled
	if got := w.must(Change{Create: q}); got.Suspended || got.Status != fsm.SendDisabled || got.UserStatus != fsm.Active {
		t.Errorf("created: %+v", got)
	}
	q.Suspended, q.UserStatus = true, fsm.Active
	if got := w.must(Change{Update: q}); got.Suspended || got.Status != fsm.Active {
		t.Errorf("changed: %+v", got)
	}
}

// S-256: the suspension is in the image, and an image without one reads as before.
func TestASuspensionSurvivesInTheImage(t *testing.T) {
	w := newWorld(t)
	made := w.must(Change{Create: queue("q")})
	var without, with bytes.Buffer
	for i, image := range []*bytes.Buffer{&without, &with} {
		if i == 1 {
			w.must(Change{Suspend: &Suspension{made.ID, fsm.Disabled}})
		}
		if _, err := w.s.Capture().WriteTo(image); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Contains(without.Bytes(), []byte("Suspended")) || bytes.Contains(without.Bytes(), []byte("UserStatus")) {
		t.Error("an image has a suspension that is none")
	}
	if err := w.s.Restore(&with); err != nil {
		t.Fatal(err)
	}
	w.refused(Change{Update: queue("q")}, fsm.Unauthorized)
	if got := w.must(Change{Suspend: &Suspension{made.ID, fsm.Active}}); got.Status != fsm.Active {
		t.Errorf("lifted: %+v", got)
	}
}
