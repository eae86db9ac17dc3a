package transport

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// largeEncoded is an encoded message with a body of size bytes. edit changes its properties; before and behind stand
// around the bare message.
func largeEncoded(size int, edit func(*amqp.Properties)) []byte {
	b := amqp.AppendHeader(nil, amqp.Header{Durable: true, TTL: amqp.Some[uint32](60_000)})
	p := amqp.Properties{GroupID: []byte("group"), AbsoluteExpiryTime: amqp.Some(amqp.Timestamp(90_000))}
	if edit != nil {
		edit(&p)
	}
	w := amqp.BeginMapSection(amqp.AppendProperties(b, &p), amqp.CodeApplicationProperties)
	w.Int("keep", 1)
	return amqp.AppendData(w.End(), noise(size))
}

// arrived is a message as the frames of a client bring it.
func arrived(b []byte, limit int) []byte {
	const frame = 60_000
	var got []byte
	for part := range slices.Chunk(b, frame) {
		got = grow(got, part, limit, nil)
	}
	return got
}

// RUL-25: what a large message is stored as does not depend on whose memory it is stored in, whatever stands before
// its body and however much longer the stored form is.
func TestALargeMessageIsStoredOverItsFrames(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	newID := func() string { return id }
	annotated := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
	annotated.Int("own", 7)
	annotations := annotated.End()
	late := amqp.BeginMapSection(nil, amqp.CodeDeliveryAnnotations)
	late.Int("late", 9)
	footer := amqp.BeginMapSection(nil, amqp.CodeFooter)
	footer.Int("sum", 3)
	withID := func(p *amqp.Properties) { p.MessageID = amqp.AppendString(nil, "m") }
	behind, foot := late.End(), footer.End()
	for name, b := range map[string][]byte{
		"an id":              largeEncoded(9<<20, withID),
		"no id":              largeEncoded(9<<20, nil),
		"no id, doubled":     largeEncoded(3<<20, nil),
		"annotations behind": append(largeEncoded(9<<20, withID), behind...),
		"a footer":           append(largeEncoded(9<<20, withID), foot...),
		"a bare body":        amqp.AppendData(nil, noise(9<<20)),
		"annotations":        append(bytes.Clone(annotations), amqp.AppendData(nil, noise(9<<20))...),
		"a value":            amqp.AppendString([]byte{0x00, 0x53, 0x77}, string(noise(9<<20))),
	} {
		desc := &fsm.Descriptor{Kind: fsm.Queue}
		want, wantText, wantBy, bad := translateMessage(b, desc, newID)
		if bad != nil {
			t.Fatalf("%s: %v", name, bad)
		}
		got, text, by, bad := translateInto(arrived(b, 100<<20), desc, newID, true)
		if bad != nil {
			t.Fatalf("%s: %v", name, bad)
		}
		if !bytes.Equal(got.Body, want.Body) {
			t.Errorf("%s: other bytes, %d of them, want %d", name, len(got.Body), len(want.Body))
		}
		got.Body, want.Body = nil, nil
		if !reflect.DeepEqual(got, want) || text != wantText || by != wantBy {
			t.Errorf("%s: %+v %q %v, want %+v %q %v", name, got, text, by, want, wantText, wantBy)
		}
	}
}

// RUL-25: a message of 100 MB takes memory for itself once, beside what came before its size was believed.
func TestALargeMessageIsNotCopiedWhileItArrives(t *testing.T) {
	const size, limit = 99 << 20, 100 << 20
	b := largeEncoded(size, nil)
	result := testing.Benchmark(func(b2 *testing.B) {
		b2.ReportAllocs()
		for b2.Loop() {
			payload := arrived(b, limit)
			if _, _, _, bad := translateInto(payload, &fsm.Descriptor{Kind: fsm.Queue},
				func() string { return "0123456789abcdef0123456789abcdef" }, true); bad != nil {
				b2.Fatal(bad)
			}
		}
	})
	if got, most := result.AllocedBytesPerOp(), int64(size+3*trustedBytes); got > most {
		t.Errorf("a message of %d bytes took %d bytes of memory, want %d at most", size, got, most)
	}
}

// What a client announces gets its memory early if that is little beside what has arrived. So a message of that size is not copied.
func TestAMessageOfMiddleSizeIsNotCopiedWhileItArrives(t *testing.T) {
	for _, size := range []int{apartFrom, 100 << 10, 256 << 10, 450 << 10} {
		b := largeEncoded(size, nil)
		if got := arrived(b, 100<<20); cap(got) != len(b)+storedSlack || !bytes.Equal(got, b) {
			t.Errorf("a message of %d bytes is in %d bytes of memory, want %d", len(b), cap(got), len(b)+storedSlack)
		}
		var caps []int
		var got []byte
		for part := range slices.Chunk(b, 60_000) {
			if got = grow(got, part, 100<<20, nil); len(caps) == 0 || caps[len(caps)-1] != cap(got) {
				caps = append(caps, cap(got))
			}
		}
		if len(caps) != 1 {
			t.Errorf("a message of %d bytes was moved: %v", len(b), caps)
		}
	}
	announced := largeEncoded(900<<10, nil)
	for _, first := range []int{20, 1000, apartFrom, 100 << 10} {
		if got := grow(nil, announced[:first], 100<<20, nil); cap(got) > maxTrust*max(first, 64) {
			t.Errorf("after %d bytes %d are taken", first, cap(got))
		}
	}
	if got := grow(nil, announced[:60_000], 500<<10, nil); cap(got) > 500<<10 {
		t.Errorf("%d bytes are taken, the limit is %d", cap(got), 500<<10)
	}
}

// A client takes no memory for a message by announcing its size: beside what has arrived of it there is as much again.
func TestAnAnnouncedSizeTakesNoMemory(t *testing.T) {
	const limit = 100 << 20
	whole := largeEncoded(99<<20, nil)
	for _, part := range []int{64 << 10, 1 << 20, trustedBytes - 1<<20} {
		if got := arrived(whole[:part], limit); cap(got) > 2*part+keptScratch {
			t.Errorf("after %d bytes %d are taken", part, cap(got))
		}
	}
	// What is announced above the limit is not believed.
	tooLarge := largeEncoded(20<<20, nil)
	if got := arrived(tooLarge[:12<<20], 16<<20); cap(got) > 16<<20 {
		t.Errorf("%d bytes are taken, the limit is %d", cap(got), 16<<20)
	}
}
