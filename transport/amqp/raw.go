package amqp

import (
	"bytes"
	"encoding/binary"
)

// Value decodes the value in full. nil gives nil.
func (r Raw) Value() (any, error) {
	if r == nil {
		return nil, nil
	}
	v, rest, err := DecodeValue(r)
	if err == nil && len(rest) > 0 {
		err = errCount
	}
	return v, err
}

// Map decodes the value, which must be a map or null.
func (r Raw) Map() (Map, error) {
	v, err := r.Value()
	if err != nil || v == nil {
		return nil, err
	}
	m, ok := v.(Map)
	if !ok {
		return nil, badf("%T where a map belongs", v)
	}
	return m, nil
}

// Clone returns a copy that outlives the bytes of which r is a view.
func (r Raw) Clone() Raw { return bytes.Clone(r) }

// IsNull reports whether the value is null or absent.
func (r Raw) IsNull() bool { return len(r) == 0 || r[0] == tNull }

// content returns the content of a primitive; ok is false for a described or malformed value.
func (r Raw) content() (code byte, content []byte, ok bool) {
	if len(r) == 0 || r[0] == tDescribed {
		return 0, nil, false
	}
	from, to, err := extent(r[0], r[1:])
	if err != nil || 1+to != len(r) {
		return 0, nil, false
	}
	return r[0], r[1+from : 1+to], true
}

// ContentBytes is how many bytes the value has without its constructor and length; of a described value
// the whole encoding counts.
func (r Raw) ContentBytes() int {
	if _, content, ok := r.content(); ok {
		return len(content)
	}
	return len(r)
}

// Text returns a string or symbol.
func (r Raw) Text() (string, bool) {
	b, ok := r.text()
	return string(b), ok
}

// TextBytes returns a view of the bytes of a string or symbol, which is not copied as Text copies it.
func (r Raw) TextBytes() ([]byte, bool) { return r.text() }

func (r Raw) text() ([]byte, bool) {
	switch code, content, ok := r.content(); code &^ wide {
	case tString8, tSymbol8:
		return content, ok && checkText(code, content) == nil
	}
	return nil, false
}

// Int64 returns an integer of any type that fits (Q23), as ToInt64 does.
func (r Raw) Int64() (int64, bool) {
	code, content, ok := r.content()
	if !ok || width(code) < 0 {
		return 0, false
	}
	return ToInt64(decodePrimitive(code, content))
}

// Timestamp returns a timestamp.
func (r Raw) Timestamp() (Timestamp, bool) {
	if code, content, ok := r.content(); ok && code == tTimestamp {
		return Timestamp(binary.BigEndian.Uint64(content)), true
	}
	return 0, false
}

// UUID returns a uuid.
func (r Raw) UUID() (UUID, bool) {
	if code, content, ok := r.content(); ok && code == tUUID {
		return UUID(content), true
	}
	return UUID{}, false
}

// Binary returns a view of the content of a binary.
func (r Raw) Binary() ([]byte, bool) {
	if code, content, ok := r.content(); ok && code&^wide == tBinary8 {
		return content, true
	}
	return nil, false
}

// Bool returns a boolean.
func (r Raw) Bool() (value, ok bool) {
	switch code, content, found := r.content(); {
	case !found:
	case code == tTrue, code == tFalse:
		return code == tTrue, true
	case code == tBool:
		return content[0] == 1, true
	}
	return false, false
}

// MapReader walks over the pairs of an encoded map without decoding or allocating.
type MapReader struct {
	b    []byte
	left int
	err  error
}

// FirstValue returns a view of the first value in b, of several that stand behind one another. The error
// wraps ErrDecode.
func FirstValue(b []byte) (Raw, error) {
	n, err := valueSize(b)
	if err != nil {
		return nil, err
	}
	if n > len(b) {
		return nil, errShort
	}
	return Raw(b[:n:n]), nil
}

// ReadMap starts to walk over a map. Null and nil are maps without pairs; anything else that is no
// map makes Err report so.
func ReadMap(r Raw) MapReader {
	if r.IsNull() {
		return MapReader{}
	}
	if r[0]&^wide != tMap8 {
		return MapReader{err: badf("constructor 0x%02x where a map belongs", r[0])}
	}
	from, to, err := extent(r[0], r[1:])
	if err != nil {
		return MapReader{err: err}
	}
	left := newBudget(r)
	count, content, err := left.list(r[0], r[1+from:1+to])
	return MapReader{b: content, left: count / 2, err: err}
}

// Next returns the next key and value as views; ok is false after the last one and after an error.
func (m *MapReader) Next() (key, value Raw, ok bool) {
	if m.err != nil || m.left == 0 {
		return nil, nil, false
	}
	m.left--
	for _, part := range []*Raw{&key, &value} {
		n, err := valueSize(m.b)
		if err != nil {
			m.err = err
			return nil, nil, false
		}
		*part, m.b = Raw(m.b[:n:n]), m.b[n:]
	}
	return key, value, true
}

// Err returns the error that ended the walk. A map that this package has checked gives none.
func (m *MapReader) Err() error { return m.err }

// Get returns the value of the first pair whose key is that text, as symbol or string; ok is false
// if there is none or r is no map.
func (r Raw) Get(key string) (value Raw, ok bool) {
	m := ReadMap(r)
	for {
		k, v, more := m.Next()
		if !more {
			return nil, false
		}
		if text, isText := k.text(); isText && string(text) == key {
			return v, true
		}
	}
}

// MapWriter writes an encoded map pair by pair. It appends to the slice it was begun with.
type MapWriter struct {
	dst     []byte
	start   int
	count   int
	symbols bool
}

// BeginMap begins a map whose keys are strings, as bodies of requests and responses have.
func BeginMap(dst []byte) MapWriter {
	dst, start := beginCompound(dst)
	return MapWriter{dst: dst, start: start}
}

// BeginSymbolMap begins a map whose keys are symbols, as annotations, fields and filters have.
func BeginSymbolMap(dst []byte) MapWriter {
	w := BeginMap(dst)
	w.symbols = true
	return w
}

// BeginMapSection begins a message section that holds a map. The keys are strings for
// application-properties and amqp-value, symbols for every other section.
func BeginMapSection(dst []byte, section Code) MapWriter {
	dst = appendDescriptor(dst, section)
	if section == CodeApplicationProperties || section == CodeAMQPValue {
		return BeginMap(dst)
	}
	return BeginSymbolMap(dst)
}

// End completes the map and returns the slice.
func (w *MapWriter) End() []byte { return endCompound(w.dst, w.start, tMap8, w.count) }

func (w *MapWriter) key(k string) {
	w.count += 2
	if w.symbols {
		w.dst = AppendSymbol(w.dst, Symbol(k))
	} else {
		w.dst = AppendString(w.dst, k)
	}
}

// Null writes a pair.
func (w *MapWriter) Null(key string) { w.key(key); w.dst = AppendNull(w.dst) }

// Bool writes a pair.
func (w *MapWriter) Bool(key string, v bool) { w.key(key); w.dst = AppendBool(w.dst, v) }

// Short writes a pair.
func (w *MapWriter) Short(key string, v int16) { w.key(key); w.dst = AppendShort(w.dst, v) }

// Int writes a pair.
func (w *MapWriter) Int(key string, v int32) { w.key(key); w.dst = AppendInt(w.dst, v) }

// Long writes a pair.
func (w *MapWriter) Long(key string, v int64) { w.key(key); w.dst = AppendLong(w.dst, v) }

// Uint writes a pair.
func (w *MapWriter) Uint(key string, v uint32) { w.key(key); w.dst = AppendUint(w.dst, v) }

// Ulong writes a pair.
func (w *MapWriter) Ulong(key string, v uint64) { w.key(key); w.dst = AppendUlong(w.dst, v) }

// Timestamp writes a pair.
func (w *MapWriter) Timestamp(key string, v Timestamp) {
	w.key(key)
	w.dst = AppendTimestamp(w.dst, v)
}

// UUID writes a pair.
func (w *MapWriter) UUID(key string, v UUID) { w.key(key); w.dst = AppendUUID(w.dst, v) }

// Binary writes a pair.
func (w *MapWriter) Binary(key string, v []byte) { w.key(key); w.dst = AppendBinary(w.dst, v) }

// String writes a pair.
func (w *MapWriter) String(key, v string) { w.key(key); w.dst = AppendString(w.dst, v) }

// Symbol writes a pair.
func (w *MapWriter) Symbol(key string, v Symbol) { w.key(key); w.dst = AppendSymbol(w.dst, v) }

// Raw writes a pair whose value is encoded already; nil is written as null.
func (w *MapWriter) Raw(key string, v Raw) { w.key(key); w.dst = appendRaw(w.dst, v) }

// Pair writes a pair that is encoded already, its key as it stands.
func (w *MapWriter) Pair(key, value Raw) {
	w.count += 2
	w.dst = appendRaw(append(w.dst, key...), value)
}

// SymbolPair writes a pair that is encoded already. A key that is a string of ASCII becomes a symbol.
func (w *MapWriter) SymbolPair(key, value Raw) {
	if len(key) > 0 && key[0]&^wide == tString8 {
		if text, ok := key.Text(); ok && ascii(text) {
			w.Raw(text, value)
			return
		}
	}
	w.Pair(key, value)
}

// appendRaw writes an encoded value, nil as null.
func appendRaw(dst []byte, v Raw) []byte {
	if len(v) == 0 {
		return AppendNull(dst)
	}
	return append(dst, v...)
}
