package partition

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// imaged applies commands to partition 3 and returns its image with all bodies of the entries behind it.
func imaged(t *testing.T, requests ...fsm.Request) []byte {
	t.Helper()
	return imagedBehind(t, 0, requests...)
}

// imagedBehind is imaged with entries of raft, without a command, behind the last one.
func imagedBehind(t *testing.T, more uint64, requests ...fsm.Request) []byte {
	t.Helper()
	s, bodies := fsm.New(3), newMemBodies()
	apply := func(index, epoch uint64, q ...fsm.Request) []fsm.Outcome {
		e := fsm.Entry{Wall: 1_700_000_000_000, Epoch: epoch, Requests: q}
		b := fsm.AppendEntry(nil, &e)
		got, err := fsm.DecodeEntry(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := bodies.Put(index, b, nil); err != nil {
			t.Fatal(err)
		}
		return s.Apply(index, got).Outcomes
	}
	apply(1, 0, fsm.Request{Command: &fsm.BecomeLeader{Node: "n"}})
	for i := range requests {
		if o := apply(uint64(2+i), 1, requests[i])[0]; o.Refusal != fsm.None {
			t.Fatalf("%T: %+v", requests[i].Command, o)
		}
	}
	var out bytes.Buffer
	if err := replica.WriteImage(&out, s.Index()+more, s.Capture()); err != nil {
		t.Fatal(err)
	}
	if _, err := bodies.Pin().Inline(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// someContent has a queue with two messages, one of them scheduled and one dead.
func someContent() []fsm.Request {
	d := queue("orders", false)
	d.ID, d.Version, d.Partitions = 7, 1, []fsm.PartitionID{3}
	return []fsm.Request{
		{Command: &fsm.PutEntity{Descriptor: d}},
		{Entity: 7, Command: &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("one")}, {Body: []byte("two")}}}},
		{Entity: 7, Command: &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("later"), ScheduledAt: 1_800_000_000_000}}}},
		{Entity: 7, Command: &fsm.Lock{Max: 1}},
	}
}

// S-366: an image is checked without a cluster, to its last body.
func TestCheckImageCountsWhatIsThere(t *testing.T) {
	img := imaged(t, someContent()...)
	got, err := CheckImage(bytes.NewReader(img), eachMemBody)
	want := ImageReport{Partition: 3, Index: 5, Wall: 1_700_000_000_000, Bodies: 3, BodyBytes: 11,
		Census: fsm.Census{Entities: 1, Active: 1, Locked: 1, Scheduled: 1}}
	if err != nil || got != want {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

// S-366: the last entry may be one of raft without a command, of which the state knows nothing.
func TestCheckImageNamesTheLastEntryOfAnyKind(t *testing.T) {
	got, err := CheckImage(bytes.NewReader(imagedBehind(t, 1, someContent()...)), eachMemBody)
	if err != nil || got.Index != 6 {
		t.Fatalf("entry %d, %v; want 6", got.Index, err)
	}
}

// S-366: damage of any kind is an error that names the place.
func TestCheckImageFindsDamage(t *testing.T) {
	img := imaged(t, someContent()...)
	without := func(index uint64) BodyReader {
		return func(r io.Reader, each func(uint64, uint32, []byte) error) error {
			return eachMemBody(r, func(i uint64, offset uint32, b []byte) error {
				if i == index {
					return nil
				}
				return each(i, offset, b)
			})
		}
	}
	short := func(r io.Reader, each func(uint64, uint32, []byte) error) error {
		return eachMemBody(r, func(i uint64, offset uint32, b []byte) error { return each(i, offset, b[:len(b)-1]) })
	}
	broken := errors.New("broken pipe")
	for name, c := range map[string]struct {
		r      io.Reader
		bodies BodyReader
		text   string
	}{
		"a body is missing":         {bytes.NewReader(img), without(3), "of entry 3 is missing"},
		"the last body is missing":  {bytes.NewReader(img), without(4), "of entry 4 is missing"},
		"a body ends early":         {bytes.NewReader(img), short, "of entry 3 is missing"},
		"nothing is there":          {strings.NewReader(""), eachMemBody, "preamble"},
		"the image ends early":      {bytes.NewReader(img[:60]), eachMemBody, "image ends"},
		"something else is there":   {strings.NewReader(strings.Repeat("x", 100)), eachMemBody, "preamble"},
		"the source fails":          {io.MultiReader(bytes.NewReader(img[:60]), &failingReader{broken}), eachMemBody, "broken pipe"},
		"there is more behind it":   {bytes.NewReader(img), leavesOne, "more behind its end"},
		"the bodies cannot be read": {bytes.NewReader(img), func(io.Reader, func(uint64, uint32, []byte) error) error { return broken }, "broken pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := CheckImage(c.r, c.bodies); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%+v, %v", got, err)
			}
		})
	}
	for at := 0; at < bytes.Index(img, []byte("orders")); at++ {
		damaged := bytes.Clone(img)
		damaged[at] ^= 1
		if _, err := CheckImage(bytes.NewReader(damaged), eachMemBody); err == nil {
			t.Fatalf("a changed byte at %d is not found", at)
		}
	}
}

type failingReader struct{ err error }

func (f *failingReader) Read([]byte) (int, error) { return 0, f.err }

// leavesOne reads all but the last byte.
func leavesOne(r io.Reader, each func(uint64, uint32, []byte) error) error {
	whole, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return err
	}
	if s, ok := r.(io.Seeker); ok {
		if _, err := s.Seek(-1, io.SeekEnd); err != nil {
			return err
		}
	}
	return eachMemBody(bytes.NewReader(whole), each)
}
