package dial

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
