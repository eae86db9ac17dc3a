package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// bodiesIn reads an inline block and lists its bodies.
func bodiesIn(block []byte) (list []string, err error) {
	r := bytes.NewReader(block)
	err = storage.EachBody(r, func(index uint64, offset uint32, body []byte) error {
		list = append(list, fmt.Sprintf("%d/%d %x", index, offset, body))
		return nil
	})
	if err == nil && r.Len() > 0 {
		err = fmt.Errorf("%d bytes are left", r.Len())
	}
	return list, err
}

// A pin writes what lived when it was taken, as often as it is asked, whatever is freed, written and emptied meanwhile.
func TestAPinWritesItsBodiesInline(t *testing.T) {
	r := openReplica(t, faultfs.New(), smallConfig())
	var want []string
	for i := uint64(1); i <= 200; i++ {
		entry, spans := pieces(i, 3, 50)
		if err := r.Bodies.Put(i, entry, spans); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			r.Bodies.Free(i, spans[1].Offset, spans[1].Length)
			spans = slices.Delete(spans, 1, 2)
		}
		for _, s := range spans {
			want = append(want, fmt.Sprintf("%d/%d %x", i, s.Offset, entry[s.Offset:s.Offset+s.Length]))
		}
	}
	pin := r.Bodies.Pin()
	for i := uint64(1); i <= 190; i++ {
		_, spans := pieces(i, 3, 50)
		for k, s := range spans {
			if i%4 != 0 || k != 1 {
				r.Bodies.Free(i, s.Offset, s.Length)
			}
		}
		mustPut(t, r.Bodies, 1000+i, bytesOf(i, 300))
	}
	r.Bodies.SweepAll()
	for range 2 {
		var block bytes.Buffer
		n, err := pin.Inline(&block)
		if err != nil || n != int64(block.Len()) {
			t.Fatalf("%d bytes of %d: %v", n, block.Len(), err)
		}
		got, err := bodiesIn(block.Bytes())
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d bodies, want %d: %v", len(got), len(want), err)
		}
		for cut := range min(block.Len(), 400) {
			if _, err := bodiesIn(block.Bytes()[:block.Len()-1-cut]); err == nil {
				t.Fatalf("a block without its last %d bytes is read", cut+1)
			}
		}
		for at := 0; at < block.Len(); at += 97 {
			damaged := bytes.Clone(block.Bytes())
			damaged[at] ^= 1
			if _, err := bodiesIn(damaged); err == nil {
				t.Fatalf("a block with a changed byte at %d is read", at)
			}
		}
	}
	if err := pin.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pin.Inline(new(bytes.Buffer)); !errors.Is(err, storage.ErrClosed) {
		t.Fatalf("a closed pin writes: %v", err)
	}
}
