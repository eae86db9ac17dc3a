package replica

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// heldCounter is a state in which a hold of forwards is in force once it was restored.
type heldCounter struct {
	counter
	hold uint64
}

func (h *heldCounter) Holding() uint64         { return h.hold }
func (h *heldCounter) Restore(io.Reader) error { h.hold = 7; return nil }

// slowBodies are restored for as long as the test likes.
type slowBodies struct {
	brittleBodies
	waits chan<- struct{}
	goOn  <-chan struct{}
}

func (b slowBodies) Restore(io.Reader) error {
	b.waits <- struct{}{}
	<-b.goOn
	return nil
}

// S-360: a replica that gets a snapshot has its state first and the bodies later. An image in between would have the
// messages of the snapshot without their bodies, and the index of the state before.
func TestNothingIsCapturedWhileASnapshotIsRestored(t *testing.T) {
	var image bytes.Buffer
	if err := WriteImage(&image, 9, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	waits, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	m := &machine{bodies: slowBodies{waits: waits, goOn: goOn}, m: &heldCounter{}, notify: func() {}}
	r := &Replica{machine: m}
	go func() { ended <- m.Restore(io.NopCloser(&image)) }()
	<-waits
	if c, err := r.Capture(7); !errors.Is(err, ErrNotHeld) {
		t.Errorf("without the bodies: %+v, %v, want to be asked again", c, err)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if c, err := r.Capture(7); err != nil || c.Index != 9 {
		t.Errorf("with the bodies: %+v, %v", c, err)
	}
}
