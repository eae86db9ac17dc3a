package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

func TestErrorsKeepTheirMeaningOnTheWay(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want error
	}{
		{&replica.NotLeaderError{Hint: "n7"}, fsm.ErrNotLeader},
		{fmt.Errorf("full: %w", fsm.ErrBusy), fsm.ErrBusy},
		{fmt.Errorf("lost: %w", fsm.ErrUnknown), fsm.ErrUnknown},
		{fmt.Errorf("%w: %w", fsm.ErrUnknown, context.Canceled), fsm.ErrUnknown},
		{replica.ErrUnparked, replica.ErrUnparked},
		{fsm.ErrClosed, fsm.ErrNotLeader}, // that node closes, this one does not
		{context.Canceled, fsm.ErrUnavailable},
		{errors.New("anything else"), fsm.ErrUnknown},
		{errors.New(strings.Repeat("long", 1000)), fsm.ErrUnknown},
	} {
		_, err := openResult(failure(tc.err))
		if !errors.Is(err, tc.want) {
			t.Errorf("%v arrives as %v", tc.err, err)
		}
		var nl *replica.NotLeaderError
		if errors.As(tc.err, &nl) && (!errors.As(err, &nl) || nl.Hint != "n7") {
			t.Errorf("hint is lost: %v", err)
		}
	}
}

// FuzzAnswers feeds answers and keys of hostile peers to their decoders.
func FuzzAnswers(f *testing.F) {
	f.Add(failure(&replica.NotLeaderError{Hint: "n7"}))
	f.Add(appendWaitKey(nil, fsm.WaitKey{Entity: 1, HasSession: true, Session: "s"}))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = openResult(b)
		_, _ = decodeWaitKey(b)
		_, _ = decodeRequestID(b)
	})
}

// The table of versions has the form that is written here.
func TestTheTableHasTheForm(t *testing.T) {
	if known := fsm.NewestFormat("verb"); known != verbVersion {
		t.Errorf("form %d is written, fsm/versions.go has %d", verbVersion, known)
	}
}
