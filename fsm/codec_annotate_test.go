package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// annotator takes the bytes of an entry apart, field by field, by an account of the format that is not the codec's
// (codec_golden_test.go). A field of the entry has the name by which a Go program finds it, and the annotator compares
// the two values. What only the bytes have, such as a version or a kind, has a name in lower case.
type annotator struct {
	t      testing.TB
	entry  *Entry
	r      reader
	fields []field
}

// field is one field in the bytes of an entry.
type field struct {
	at    int
	bytes []byte
	name  string
	value string
}

// annotated returns the text of a golden file: bytes, a semicolon, the offset, and what the bytes mean.
func annotated(t testing.TB, b []byte) string {
	t.Helper()
	e, err := DecodeEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	a := &annotator{t: t, entry: e, r: reader{b: b}}
	a.entryFields()
	if err := a.r.end(); err != nil {
		t.Fatal(err)
	}
	const perLine = 16
	var s strings.Builder
	fmt.Fprintf(&s, "# an entry with a command %s: bytes; offset, name, value\n", a.typeOf("Requests[0].Command"))
	for _, f := range a.fields {
		b := f.bytes
		fmt.Fprintf(&s, "%-48s; %4d %s: %s\n", fmt.Sprintf("% x", b[:min(len(b), perLine)]), f.at, f.name, f.value)
		for b = b[min(len(b), perLine):]; len(b) > 0; b = b[min(len(b), perLine):] {
			fmt.Fprintf(&s, "% x\n", b[:min(len(b), perLine)])
		}
	}
	return s.String()
}

// goldenBytes reads annotated hex: bytes, then optionally a semicolon and what they mean. A line that begins with # says
// what the whole is.
func goldenBytes(t testing.TB, path string) (text string, golden []byte) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line, _, _ = strings.Cut(line, ";")
		b, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
		if err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		golden = append(golden, b...)
	}
	return string(file), golden
}

// find returns what a name stands for in the entry.
func (a *annotator) find(name string) reflect.Value {
	a.t.Helper()
	v := reflect.ValueOf(a.entry)
	for part := range strings.SplitSeq(strings.ReplaceAll(name, "[", ".["), ".") {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if index, ok := strings.CutPrefix(part, "["); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if err != nil || v.Kind() != reflect.Slice || n >= v.Len() {
				a.t.Fatalf("%s: no element %s", name, part)
			}
			v = v.Index(n)
			continue
		}
		if v.Kind() != reflect.Struct || !v.FieldByName(part).IsValid() {
			a.t.Fatalf("%s: a %s has no field %s", name, v.Type(), part)
		}
		v = v.FieldByName(part)
	}
	return v
}

func (a *annotator) typeOf(name string) string {
	v := a.find(name)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v.Type().Name()
}

// took notes a field that was read from an offset on. A name with a capital is compared with the entry.
func (a *annotator) took(at int, name string, value any) {
	a.t.Helper()
	if a.r.err != nil {
		a.t.Fatalf("%s: %v", name, a.r.err)
	}
	text := shown(value)
	if last := name[strings.LastIndex(name, ".")+1:]; strings.ToUpper(last[:1]) == last[:1] {
		v := a.find(name)
		if want := plain(v); !reflect.DeepEqual(value, want) {
			a.t.Fatalf("%s is %v at byte %d and %v in the entry", name, value, at, want)
		}
		if s, ok := v.Interface().(fmt.Stringer); ok && v.Kind() == reflect.Uint8 {
			text += fmt.Sprintf(" (%s)", s)
		}
	}
	name = strings.TrimPrefix(name, "Requests[0].")
	a.fields = append(a.fields, field{at, a.r.b[at:a.r.pos], name, text})
}

// plain is a value in the type in which it is read: a list counts as its length, and bytes as a string.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return v.Uint()
	case reflect.Int64:
		return v.Int()
	case reflect.Bool:
		return v.Bool()
	case reflect.String:
		return v.String()
	case reflect.Array:
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		return string(b)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return string(v.Bytes())
		}
		return uint64(v.Len())
	}
	if source, ok := v.Interface().(rule.Source); ok {
		return string(source.Append(nil))
	}
	return v.Interface()
}

// shown is a value as people read it.
func shown(value any) string {
	s, ok := value.(string)
	if !ok {
		return fmt.Sprint(value)
	}
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("%d bytes", len(s))
		}
	}
	return strconv.Quote(s)
}

func (a *annotator) uint(name string) uint64 {
	at := a.r.pos
	v := a.r.uvarint()
	a.took(at, name, v)
	return v
}

func (a *annotator) time(name string) {
	at := a.r.pos
	a.took(at, name, int64(a.r.millis()))
}

func (a *annotator) bool(name string) bool {
	at := a.r.pos
	v := a.r.boolean()
	a.took(at, name, v)
	return v
}

func (a *annotator) byte(name string) uint8 {
	at := a.r.pos
	v := a.r.u8()
	a.took(at, name, uint64(v))
	return v
}

func (a *annotator) word(name string) {
	at := a.r.pos
	a.took(at, name, a.r.u64())
}

// text reads a text, or bytes, behind their length.
func (a *annotator) text(name string) {
	at := a.r.pos
	a.took(at, name, a.r.string())
}

func (a *annotator) fixed(name string, n int) {
	at, b := a.r.pos, make([]byte, n)
	a.r.fixed(b)
	a.took(at, name, string(b))
}

// list reads the number of elements, and each of them.
func (a *annotator) list(name string, each func(element string)) {
	for i := range a.uint(name) {
		each(fmt.Sprintf("%s[%d]", name, i))
	}
}

// The annotations are those of the bytes, also of the versions that nothing writes any more.
func TestAnnotationsOfGoldensSayWhatTheBytesAre(t *testing.T) {
	names, err := os.ReadDir("testdata/codec")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range names {
		path := "testdata/codec/" + f.Name()
		text, golden := goldenBytes(t, path)
		want := annotated(t, golden)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			text = want
		}
		if text != want {
			t.Errorf("%s says\n%s\nand is\n%s", path, text, want)
		}
		if _, back := goldenBytes(t, path); !bytes.Equal(back, golden) {
			t.Errorf("%s: without its annotations it is\n%x, want\n%x", path, back, golden)
		}
	}
}
