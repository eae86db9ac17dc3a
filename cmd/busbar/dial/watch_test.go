package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// What is shown again and again is printed when it has changed. A failure is shown, unless it is the first.
func TestAgainPrintsWhatHasChanged(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out bytes.Buffer
	c := &cobra.Command{}
	c.SetOut(&out)
	c.SetContext(ctx)
	texts := []string{"a", "a", "b", "", "b", "b", "c"}
	err := Again(c, time.Millisecond, func() error {
		text := texts[0]
		if texts = texts[1:]; text == "c" {
			stop()
		}
		if text == "" {
			return errors.New("boom")
		}
		_, err := fmt.Fprintln(c.OutOrStdout(), text)
		return err
	})
	if want := "a\nb\nbusbar: boom\nb\n"; out.String() != want || err != nil {
		t.Errorf("printed %q, %v, want %q", out.String(), err, want)
	}
	if err := Again(c, time.Millisecond, func() error { return errors.New("first") }); err != nil {
		t.Errorf("behind the end of the context: %v", err)
	}
	c.SetContext(t.Context())
	if err := Again(c, time.Millisecond, func() error { return errors.New("first") }); err == nil || err.Error() != "first" {
		t.Errorf("a first failure: %v", err)
	}
}
