package dial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

func TestWireErrorsHaveExitCodes(t *testing.T) {
	remote := func(c amqp.ErrCond) error { return &amqp.LinkError{RemoteErr: &amqp.Error{Condition: c}} }
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"unauthorized", remote(amqp.ErrCondUnauthorizedAccess), exit.Unauthorised},
		{"not found", remote(amqp.ErrCondNotFound), exit.NotFound},
		{"a held session", remote("com.microsoft:session-cannot-be-locked"), exit.Conflict},
		{"a lost lock", &amqp.Error{Condition: MessageLockLost}, exit.Conflict},
		{"a lost session", &amqp.Error{Condition: SessionLockLost}, exit.Conflict},
		{"not allowed", remote(amqp.ErrCondNotAllowed), exit.Usage},
		{"a rejected message", &amqp.Error{Condition: amqp.ErrCondMessageSizeExceeded}, exit.Usage},
		{"anything else", remote(amqp.ErrCondInternalError), exit.Failed},
		{"a status inside", fmt.Errorf("x: %w", exit.FromHTTP("peek", 404, "gone")), exit.NotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got *exit.Error
			if err := Failure("send", c.err); !errors.As(err, &got) || got.Code != c.want {
				t.Errorf("got %v, want exit code %d", err, c.want)
			}
		})
	}
	said := &amqp.LinkError{RemoteErr: &amqp.Error{Condition: amqp.ErrCondNotAllowed, Description: "not so"}}
	if got := Failure("open q", said); got.Error() != "open q: not so (amqp:not-allowed)" {
		t.Errorf("got %q, want the broker's own words", got)
	}
	if !NothingCame(Failure("open q", &amqp.LinkError{RemoteErr: &amqp.Error{
		Condition: "com.microsoft:timeout", Description: "none in time"}})) {
		t.Error("a wait without result is a failure once the broker explains it")
	}
	if NothingCame(nil) || !NothingCame(context.DeadlineExceeded) || !NothingCame(remote("com.microsoft:timeout")) {
		t.Error("only an end of the waiting time is nothing")
	}
	if Failure("send", nil) != nil {
		t.Error("success became an error")
	}
}

// A failure says what to do about it, once, and keeps its exit code.
func TestFailuresNameTheirCure(t *testing.T) {
	for text, cure := range map[string]string{
		"The messaging entity 'sb://x/y' could not be found": "busbar entities list",
		"messages cannot be received from a topic":           "busbar subscription list",
		"dial tcp 127.0.0.1:1: connect: connection refused":  "is the broker running",
		`unexpected protocol "HTTP"`:                         "is it the operations port?",
		"something else":                                     "",
	} {
		remote := Failure("open y", &amqp.Error{Condition: amqp.ErrCondNotFound, Description: text + ". TrackingId:abc_G1, SystemTracker:x"})
		if got := remote.Error(); exit.Code(remote) != exit.NotFound || !strings.Contains(got, cure) || !strings.Contains(got, "tracking id abc_G1)") ||
			strings.Contains(got, "SystemTracker") {
			t.Errorf("%s: %s", text, got)
		}
		for _, err := range []error{errors.New(text), exit.With(exit.NotFound, errors.New(text))} {
			failed := Failure("peek", Failure("authorise for y", err))
			if got := failed.Error(); strings.Count(got, text) != 1 || cure != "" && strings.Count(got, cure) != 1 || exit.Code(failed) != exit.Code(err) {
				t.Errorf("%s: %s", text, got)
			}
		}
	}
}

// What is missing is named: the topic of a new subscription, and the subscription of a new rule.
func TestRefusalsNameWhatIsMissing(t *testing.T) {
	m := &Management{Target: &Target{}}
	for _, c := range []struct {
		method, path string
		status       int
		detail, want string
	}{
		{"PUT", "trades/Subscriptions/eu", 404, "Entity 'busbar:Topic:trades|eu' was not found", "x: 404: there is no trades"},
		{"PUT", "trades/Subscriptions/eu/Rules/r", 404, "not found", "x: 404: there is no trades/Subscriptions/eu"},
		{"PUT", "$x", 404, "No service is hosted at the specified address", "x: 404: No service is hosted at the specified address"},
		{"GET", "trades/Subscriptions/eu", 404, "not found", "x: 404: there is no trades/Subscriptions/eu"},
		{"DELETE", "q", 410, "gone", "x: 404: there is no q"},
		{"GET", "q", 401, "InvalidSignature: The token has an invalid signature", "x: 401: InvalidSignature: The token has an invalid signature: " +
			"is the key in the connection string the one of that policy?"},
		{"PUT", "a b", 400, "SubCode=40000. 'sb://h/a b' contains character(s) that is not allowed by", `x: 400: "a b" is no name: a name has letters, digits, periods, hyphens, underscores and slashes`},
	} {
		if got := m.refused("x", c.method, c.path, c.status, c.detail); got.Error() != c.want {
			t.Errorf("%s %s: %v, want %s", c.method, c.path, got, c.want)
		}
	}
}

// A request that got no answer is told without its URL, and a list by what it lists.
func TestARequestWithoutAnswer(t *testing.T) {
	m := NewManagement(&Target{Host: "127.0.0.1:1", Plain: true}, time.Minute)
	for path, want := range map[string]string{
		"$Resources/Queues":       "list queues: dial tcp 127.0.0.1:1: connect: connection refused: nobody listens there",
		"trades/Subscriptions":    "list subscriptions of trades: dial tcp",
		"t/Subscriptions/s/Rules": "list rules of t/Subscriptions/s: dial tcp",
	} {
		if _, err := m.List(t.Context(), path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
