package amqp

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// attachWith decodes an attach with the given source and target bytes.
func attachWith(t *testing.T, source, target []byte) *Attach {
	t.Helper()
	dst, start := beginCompound(appendDescriptor(nil, CodeAttach))
	dst = AppendBool(AppendUint(AppendString(dst, "l"), 0), true)
	dst = append(dst, tNull, tNull)
	dst = append(append(dst, source...), target...)
	var a Attach
	if err := a.Decode(endCompound(dst, start, tList8, 7)); err != nil {
		t.Fatal(err)
	}
	return &a
}

var emptySource = "00 53 28 c0 0c 0b 40 40 40 40 40 40 40 40 40 40 40"

func TestEchoOfASource(t *testing.T) { // G1, G8
	for _, tc := range []struct{ name, in, want string }{
		{"a source that is null is answered with all fields null", "40", emptySource},
		{"an empty list likewise", "00 53 28 45", emptySource},
		{"what was left out is padded", "00 53 28 c0 04 01 a1 01 71",
			"00 53 28 c0 0e 0b a1 01 71 40 40 40 40 40 40 40 40 40 40"},
		{"fields keep the form that the client gave them",
			"00 80 00 00 00 00 00 00 00 28 d0 00 00 00 0f 00 00 00 02 b1 00 00 00 01 71 70 00 00 00 00",
			"00 53 28 c0 15 0b b1 00 00 00 01 71 70 00 00 00 00 40 40 40 40 40 40 40 40 40"},
		{"an address with scheme and host is not touched",
			"00 53 28 c0 09 02 a1 05 61 3a 2f 2f 62 40",
			"00 53 28 c0 12 0b a1 05 61 3a 2f 2f 62 40 40 40 40 40 40 40 40 40 40"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := attachWith(t, unhex(t, tc.in), []byte{tNull})
			echo := a.Source.Echo(Opt[string]{})
			if got := echo.appendTo(nil); !bytes.Equal(got, unhex(t, tc.want)) {
				t.Errorf("got  % x\nwant % x", got, unhex(t, tc.want))
			}
			if again := attachWith(t, echo.Encoded, []byte{tNull}); a.Source != nil &&
				!reflect.DeepEqual(again.Source.Address, a.Source.Address) {
				t.Errorf("address %v became %v", a.Source.Address, again.Source.Address)
			}
		})
	}
}

func TestEchoOfATarget(t *testing.T) { // G1, G8
	full := "00 53 29 c0 08 07 40 40 40 40 40 40 40"
	for _, tc := range []struct{ name, in, want string }{
		{"null", "40", full},
		{"an empty list", "00 53 29 45", full},
		{"an address alone", "00 53 29 c0 04 01 a1 01 71",
			"00 53 29 c0 0a 07 a1 01 71 40 40 40 40 40 40"},
		{"a coordinator stays a coordinator", "00 53 30 45", "00 53 30 c0 02 01 40"},
		{"with its capabilities", "00 53 30 c0 04 01 a3 01 78", "00 53 30 c0 04 01 a3 01 78"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := attachWith(t, []byte{tNull}, unhex(t, tc.in))
			reply := &Attach{Name: "l"}
			if a.Coordinator != nil {
				reply.Coordinator = a.Coordinator.Echo()
			} else {
				reply.Target = a.Target.Echo()
			}
			// The target stands behind four bytes of the source that we refuse with null.
			want := unhex(t, tc.want)
			if got := AppendFrame(nil, 0, reply); !bytes.Contains(got, want) {
				t.Errorf("% x lacks % x", got, want)
			}
		})
	}
}

func TestEchoOfATerminusOfOurs(t *testing.T) {
	s := &Source{Address: Some("q"), Filter: symbolMap(FilterSession, nil)}
	want := &Source{Address: Some("q"), Filter: symbolMap(FilterSession, "s")}
	if got := s.Echo(Some("s")).appendTo(nil); !bytes.Equal(got, want.appendTo(nil)) {
		t.Errorf("source % x", got)
	}
	target := &Target{Address: Some("q")}
	if got := target.Echo().appendTo(nil); !bytes.Equal(got, target.appendTo(nil)) {
		t.Errorf("target % x", got)
	}
	c := &Coordinator{Capabilities: []Symbol{"x"}}
	if got := c.Echo().appendTo(nil); !bytes.Equal(got, c.appendTo(nil)) {
		t.Errorf("coordinator % x", got)
	}
}

// TestSessionFilter: S-36 and S-38 need to tell a session by id from the next one; RUL-17 makes the
// empty id one like any other; G16 wants the answer in the form of the question.
func TestSessionFilter(t *testing.T) {
	const goDescriptor = uint64(0x000000137000000c)
	other := Pair{Key: Symbol("apache.org:selector-filter:string"), Value: Described{uint64(4),
		"a=1"}}
	for _, tc := range []struct {
		name   string
		filter any
		want   SessionFilter
		ok     bool
		echo   any
	}{
		{"no filter", nil, SessionFilter{}, false, nil},
		{"another filter only", Map{other}, SessionFilter{}, false, Map{other}},
		{"bare null is the next session", Map{{FilterSession, nil}},
			SessionFilter{}, true, Map{{FilterSession, "s9"}}},
		{"bare string is a session by id", Map{{FilterSession, "s1"}},
			SessionFilter{SessionID: Some("s1")}, true, Map{{FilterSession, "s9"}}},
		{"the empty string is an id", Map{{FilterSession, ""}},
			SessionFilter{SessionID: Some("")}, true, Map{{FilterSession, "s9"}}},
		{"described null is the next session", Map{{FilterSession, Described{goDescriptor, nil}}},
			SessionFilter{Described: true}, true,
			Map{{FilterSession, Described{goDescriptor, "s9"}}}},
		{"described string is a session by id", Map{{FilterSession, Described{goDescriptor, "s1"}}},
			SessionFilter{SessionID: Some("s1"), Described: true}, true,
			Map{{FilterSession, Described{goDescriptor, "s9"}}}},
		{"the descriptor may be a symbol", Map{{FilterSession, Described{FilterSession, "s1"}}},
			SessionFilter{SessionID: Some("s1"), Described: true}, true,
			Map{{FilterSession, Described{FilterSession, "s9"}}}},
		{"the key may be a string, others stay", Map{other, {string(FilterSession), "s1"}},
			SessionFilter{SessionID: Some("s1")}, true,
			Map{other, {string(FilterSession), "s9"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := (&Source{Address: Some("q"), Filter: rawOf(tc.filter)}).appendTo(nil)
			s := attachWith(t, in, []byte{tNull}).Source
			got, ok, err := s.SessionFilter()
			if got != tc.want || ok != tc.ok || err != nil {
				t.Errorf("got %+v, %t, %v", got, ok, err)
			}
			echo := attachWith(t, s.Echo(Some("s9")).Encoded, []byte{tNull}).Source
			if v, err := echo.Filter.Value(); err != nil || !reflect.DeepEqual(v, tc.echo) {
				t.Errorf("echoed %#v, %v", v, err)
			}
			same := s.Echo(Opt[string]{})
			if !bytes.Equal(same.Encoded, in) {
				t.Errorf("without an id: % x, sent % x", same.Encoded, in)
			}
		})
	}
}

func TestSessionFilterOfAnotherTypeIsRefused(t *testing.T) {
	for _, v := range []any{uint32(1), Symbol("s"), List{"s"}, Described{uint64(1), uint32(1)},
		Described{uint64(1), Described{uint64(1), "s"}}} {
		s := &Source{Filter: symbolMap(FilterSession, v)}
		if _, _, err := s.SessionFilter(); !errors.Is(err, ErrDecode) {
			t.Errorf("%#v: %v", v, err)
		}
	}
	if _, ok, err := (*Source)(nil).SessionFilter(); ok || err != nil {
		t.Errorf("no source: %t, %v", ok, err)
	}
}

// The echo is kept while the frame's buffer is used again.
func TestEchoOutlivesTheFrame(t *testing.T) {
	in := (&Source{Address: Some("orders"), Filter: symbolMap(FilterSession, nil)}).appendTo(nil)
	frame := AppendFrame(nil, 0, &Attach{Name: "l", Source: &Source{Encoded: in},
		Target: &Target{Address: Some("t")}})
	p, _, err := DecodePerformative(frame[FrameHeaderBytes:])
	if err != nil {
		t.Fatal(err)
	}
	a := p.(*Attach)
	source, target := a.Source.Echo(Some("s")), a.Target.Echo()
	want := append(source.appendTo(nil), target.appendTo(nil)...)
	wantFilter := source.Filter.Clone()
	clear(frame)
	if got := append(source.appendTo(nil), target.appendTo(nil)...); !bytes.Equal(got, want) {
		t.Errorf("got % x", got)
	}
	if !bytes.Equal(source.Filter, wantFilter) {
		t.Errorf("filter % x", source.Filter)
	}
}
