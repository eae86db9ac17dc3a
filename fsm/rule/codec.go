package rule

import (
	"encoding/binary"
	"fmt"
)

// sourceVersion is the first byte of the binary form. A change of the form needs a new number, and
// the old one stays readable as long as a log or snapshot may hold it.
const sourceVersion = 1

// minPropertyBytes is the shortest encoded property: three texts of no length.
const minPropertyBytes = 3

// Append appends the stable binary form of s: version, kind, expression, parameters, a byte that is
// 1 if a correlation follows, action, action parameters. Texts and lists have their length before
// them as an unsigned varint; a property is name, value in its text form, and type; a correlation
// is eight texts in the order of its fields, each behind a byte that says whether it is set, and
// properties.
func (s *Source) Append(dst []byte) []byte {
	dst = append(dst, sourceVersion, byte(s.Kind))
	dst = appendText(dst, s.Expression)
	dst = appendProperties(dst, s.Parameters)
	dst = appendFlag(dst, s.Correlation != nil)
	if c := s.Correlation; c != nil {
		for _, f := range c.fields() {
			dst = appendFlag(dst, *f.text != nil)
			if *f.text != nil {
				dst = appendText(dst, **f.text)
			}
		}
		dst = appendProperties(dst, c.Properties)
	}
	dst = appendText(dst, s.Action)
	return appendProperties(dst, s.ActionParameters)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendFlag(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendProperties(dst []byte, list []Property) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		dst = appendText(dst, list[i].Name)
		dst = appendText(dst, list[i].Value.String())
		dst = appendText(dst, list[i].Type)
	}
	return dst
}

// DecodeSource reads what Append wrote, and nothing after it. It does not compile the rule. The
// error is a *SourceError.
func DecodeSource(b []byte) (Source, error) {
	d := decoder{b: b}
	if v := d.byte(); d.err == nil && v != sourceVersion {
		d.fail("version %d, this program reads %d", v, sourceVersion)
	}
	s := Source{Kind: FilterKind(d.byte()), Expression: d.text(), Parameters: d.properties()}
	if d.flag() {
		s.Correlation = &Correlation{}
		for _, f := range s.Correlation.fields() {
			if d.flag() {
				text := d.text()
				*f.text = &text
			}
		}
		s.Correlation.Properties = d.properties()
	}
	s.Action, s.ActionParameters = d.text(), d.properties()
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes left over", len(d.b))
	}
	if d.err != nil {
		return Source{}, d.err
	}
	return s, nil
}

// decoder returns zero values after its first error. Nothing it makes is larger than what is left
// to read could fill.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = sourceErrorf("malformed rule: %s", fmt.Sprintf(format, args...))
	}
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("truncated")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) flag() bool {
	v := d.byte()
	if v > 1 {
		d.fail("a flag is neither 0 nor 1")
	}
	return v == 1
}

// count reads a number of elements, each at least so many bytes long.
func (d *decoder) count(elementBytes int) int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > uint64((len(d.b)-n)/elementBytes) {
		d.fail("a length exceeds what is left")
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

func (d *decoder) text() string {
	n := d.count(1)
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) properties() []Property {
	n := d.count(minPropertyBytes)
	if n == 0 {
		return nil
	}
	list := make([]Property, n)
	for i := range list {
		list[i].Name = d.text()
		if err := list[i].Value.UnmarshalText([]byte(d.text())); err != nil && d.err == nil {
			d.err = err
			d.b = nil
		}
		list[i].Type = d.text()
	}
	return list
}
