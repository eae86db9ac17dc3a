package amqp

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
)

// ToInt64 returns an integer of any AMQP type that fits: clients choose the type by the value, not
// by the field (Q23). Booleans, floats and timestamps are no integers.
func ToInt64(v any) (int64, bool) {
	switch v := v.(type) {
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), v <= math.MaxInt64
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// ToText returns a string or symbol.
func ToText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Symbol:
		return string(v), true
	}
	return "", false
}

// ToItems returns the items of a list or of any array, which clients use alike.
func ToItems(v any) ([]any, bool) {
	switch v := v.(type) {
	case List:
		return v, true
	case Array:
		return v.Items, true
	case []int64:
		return boxed(v), true
	case []UUID:
		return boxed(v), true
	case []Timestamp:
		return boxed(v), true
	case []Symbol:
		return boxed(v), true
	case []string:
		return boxed(v), true
	}
	return nil, false
}

func boxed[T any](items []T) []any {
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = v
	}
	return out
}

// ToInt64s returns a list or array of integers of any type.
func ToInt64s(v any) ([]int64, bool) {
	if v, ok := v.([]int64); ok {
		return v, true
	}
	return itemsAs(v, ToInt64)
}

// ToUUIDs returns a list or array of uuids.
func ToUUIDs(v any) ([]UUID, bool) {
	if v, ok := v.([]UUID); ok {
		return v, true
	}
	return itemsAs(v, func(v any) (UUID, bool) { u, ok := v.(UUID); return u, ok })
}

// ToTexts returns a list or array of strings or symbols.
func ToTexts(v any) ([]string, bool) {
	if v, ok := v.([]string); ok {
		return v, true
	}
	return itemsAs(v, ToText)
}

func itemsAs[T any](v any, as func(any) (T, bool)) ([]T, bool) {
	items, ok := ToItems(v)
	if !ok {
		return nil, false
	}
	out := make([]T, len(items))
	for i, item := range items {
		if out[i], ok = as(item); !ok {
			return nil, false
		}
	}
	return out, true
}

// Get returns the value of the first pair whose key is that text, as string or symbol.
func (m Map) Get(key string) (any, bool) {
	for _, p := range m {
		if text, ok := ToText(p.Key); ok && text == key {
			return p.Value, true
		}
	}
	return nil, false
}

// String returns the canonical text of a uuid, 36 lower-case characters.
func (u UUID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// IDText returns one text per message-id or correlation-id, for duplicate detection and logs. A string stays as it
// is, a ulong is in decimal, a uuid in its canonical form, a binary in hex. ok is false for null and for every other
// type, AMQP 1.0 §3.2.11.
func IDText(id Raw) (text string, ok bool) {
	code, content, found := id.content()
	if !found {
		return "", false
	}
	switch code {
	case tString8, tString32:
		return string(content), true
	case tUlong0, tSmallUlong, tUlong:
		v, _ := decodePrimitive(code, content).(uint64)
		return strconv.FormatUint(v, 10), true
	case tUUID:
		return UUID(content).String(), true
	case tBinary8, tBinary32:
		return hex.EncodeToString(content), true
	}
	return "", false
}

// GuidTag returns the delivery tag of a lock token in the byte order of a .NET Guid (G12). The first four bytes, the
// next two and the next two are reversed.
func GuidTag(token UUID) [16]byte {
	tag := [16]byte(token)
	binary.LittleEndian.PutUint32(tag[0:], binary.BigEndian.Uint32(token[0:]))
	binary.LittleEndian.PutUint16(tag[4:], binary.BigEndian.Uint16(token[4:]))
	binary.LittleEndian.PutUint16(tag[6:], binary.BigEndian.Uint16(token[6:]))
	return tag
}

// TokenFromTag is the inverse of GuidTag; ok is false if the tag is not 16 bytes long.
func TokenFromTag(tag []byte) (token UUID, ok bool) {
	if len(tag) != len(token) {
		return UUID{}, false
	}
	return GuidTag(UUID(tag)), true // the reversal is its own inverse
}

const (
	// ticksToUnixEpoch is 1970-01-01 in .NET ticks: units of 100 ns since 0001-01-01 UTC.
	ticksToUnixEpoch = 621355968000000000
	ticksPerMilli    = 10000
	// maxTicks is the last tick of the year 9999, the end of .NET's time.
	maxTicks = 3155378975999999999
)

// Ticks returns the time in .NET ticks, which com.microsoft:locked-until-utc is in (G16). Times
// that .NET cannot represent give its first or last one.
func (t Timestamp) Ticks() int64 {
	const first = -ticksToUnixEpoch / ticksPerMilli
	const last = (maxTicks - ticksToUnixEpoch) / ticksPerMilli
	switch {
	case t < first:
		return 0
	case t > last:
		return maxTicks
	}
	return int64(t)*ticksPerMilli + ticksToUnixEpoch
}

// TimestampOfTicks returns the time of .NET ticks, rounded down to milliseconds.
func TimestampOfTicks(ticks int64) Timestamp {
	ms := ticks/ticksPerMilli - ticksToUnixEpoch/ticksPerMilli
	if ticks < 0 && ticks%ticksPerMilli != 0 {
		ms--
	}
	return Timestamp(ms)
}
