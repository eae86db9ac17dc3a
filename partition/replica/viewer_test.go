package replica

import (
	"bytes"
	"io"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// slowImage gives the bytes of an image. Before the last one it says that it waits, and waits.
type slowImage struct {
	*bytes.Reader
	waits chan<- struct{}
	goOn  <-chan struct{}
}

func (s *slowImage) Read(p []byte) (int, error) {
	if s.Len() == 1 {
		s.waits <- struct{}{}
		<-s.goOn
		return s.Reader.Read(p)
	}
	return s.Reader.Read(p[:min(len(p), s.Len()-1)])
}

// The loop of a connection asks the catalog for each request. A snapshot that comes in slowly must not hold it up.
func TestAReaderOfTheCatalogWaitsForNoSnapshot(t *testing.T) {
	state := catalog.New()
	state.Apply(1, &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.BecomeLeader{Node: "n1"}}}})
	place := catalog.Change{Place: &catalog.Placement{Groups: []catalog.Group{{ID: 1, Members: []fsm.NodeID{"n1"}}}}}
	if o := state.Apply(2, &fsm.Entry{Epoch: 1, Requests: []fsm.Request{{Command: place.Command()}}}).Outcomes[0]; o.Refusal != fsm.None {
		t.Fatalf("place: %+v", o)
	}
	var image bytes.Buffer
	if err := WriteImage(&image, 2, state.Capture()); err != nil {
		t.Fatal(err)
	}

	m := &machine{bodies: brittleBodies{}, m: catalog.New(), notify: func() {}}
	m.publishLocked()
	r := &Replica{machine: m}
	waits, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- m.Restore(io.NopCloser(&slowImage{bytes.NewReader(image.Bytes()), waits, goOn}))
	}()
	<-waits
	if m.mu.TryLock() {
		t.Fatal("the restore does not hold the lock of the machine: this test shows nothing")
	}
	if n := len(r.Catalog().Groups()); n != 0 {
		t.Errorf("%d groups before the snapshot is there", n)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if groups := r.Catalog().Groups(); len(groups) != 1 || groups[0].ID != 1 {
		t.Errorf("groups %v after the snapshot", groups)
	}
}
