package stored

import "encoding/binary"

// Descriptors of the sections in front of the body (AMQP 1.0 §3.2.4, §3.2.5).
const (
	sectionProperties  = 0x73
	sectionApplication = 0x74
)

// leastHeadBytes is how much of a large message travels first at least.
const leastHeadBytes = 4 << 10

// HeadBytes is how much of a stored message must travel with the command when the rest is uploaded. It covers the part
// that the state looks at, and some bytes of the body at least.
func HeadBytes(b []byte) int {
	var m Message
	_, at, ok := m.split(b)
	if !ok {
		return min(len(b), leastHeadBytes)
	}
	return min(max(headEnd(b, at), leastHeadBytes), len(b))
}

// headEnd returns where the sections with properties end.
func headEnd(b []byte, at int) int {
	for range 2 {
		n := sectionBytes(b[at:])
		if n == 0 {
			break
		}
		at += n
	}
	return at
}

// sectionBytes returns the size of a section with properties at the beginning of b, 0 if there is
// none.
func sectionBytes(b []byte) int {
	const longest = 64 // of a descriptor; a symbolic one is half of that
	_, from, ok := sectionCode(string(b[:min(len(b), longest)]))
	if !ok || from >= len(b) {
		return 0
	}
	size := 0
	switch code := b[from]; {
	case code == codeList0:
		size = 1
	case (code == codeList8 || code == codeMap8) && len(b) > from+1:
		size = 2 + int(b[from+1])
	case (code == codeList32 || code == codeMap32) && len(b) > from+4:
		size = 5 + int(binary.BigEndian.Uint32(b[from+1:]))
	default:
		return 0
	}
	if size > len(b)-from {
		return 0
	}
	return from + size
}

// sectionCode reads the descriptor of a section with properties, numeric or by name, and returns
// where its value begins.
func sectionCode(s string) (section, from int, ok bool) {
	if s == "" || s[0] != codeDescribed {
		return 0, 0, false
	}
	d, rest, ok := nextPlain(s[1:])
	if !ok {
		return 0, 0, false
	}
	from = len(s) - len(rest)
	switch name, isName := d.Text(); {
	case isName && name == "amqp:properties:list":
		return sectionProperties, from, true
	case isName && name == "amqp:application-properties:map":
		return sectionApplication, from, true
	case d.code == codeSmallUlong || d.code == codeUlong:
		n := bigEndian(d.content)
		return int(n & 0xff), from, n == sectionProperties || n == sectionApplication
	}
	return 0, 0, false
}
