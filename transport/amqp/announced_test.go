package amqp

import "testing"

// The size of a message is known from its beginning, wherever it is cut, and 0 stands for a beginning that does not
// tell it.
func TestAnnouncedBytes(t *testing.T) {
	w := BeginMapSection(AppendHeader(nil, Header{Durable: true}), CodeApplicationProperties)
	w.Int("a", 1)
	head := w.End()
	data := AppendData(append([]byte(nil), head...), make([]byte, 1<<20))
	value := append(append([]byte(nil), head...), 0x00, 0x53, 0x77)
	value = AppendString(value, string(make([]byte, 1<<20)))
	for name, b := range map[string][]byte{"data": data, "value": value} {
		body := len(b) - 1<<20
		for at := range body + 10 {
			want := 0
			if at >= body {
				want = len(b)
			}
			if got := AnnouncedBytes(b[:at]); got != want {
				t.Errorf("%s, %d bytes of it: %d, want %d", name, at, got, want)
			}
		}
	}
	two := AppendData(AppendData(nil, make([]byte, 300)), make([]byte, 400))
	if got, want := AnnouncedBytes(two), len(AppendData(nil, make([]byte, 300))); got != want {
		t.Errorf("two sections: %d, want %d, the end of the first", got, want)
	}
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"no section":         {0x40, 0x40, 0x40},
		"a header alone":     AppendHeader(nil, Header{}),
		"an unknown section": {0x00, 0x53, 0x10, 0xb0, 0, 0, 1, 0},
	} {
		if got := AnnouncedBytes(b); got != 0 {
			t.Errorf("%s: %d, want 0", name, got)
		}
	}
}
