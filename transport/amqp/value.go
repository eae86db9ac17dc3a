package amqp

// The Go types of AMQP values, as DecodeValue returns and AppendValue takes them:
//
//	null nil          boolean bool
//	ubyte uint8       ushort uint16     uint uint32       ulong uint64
//	byte int8         short int16       int int32         long int64
//	float float32     double float64    decimal32 Decimal32 (64, 128 alike)
//	char Char         timestamp Timestamp                 uuid UUID
//	binary []byte     string string     symbol Symbol
//	list List         map Map           described Described
//	array of long []int64, uuid []UUID, timestamp []Timestamp, symbol []Symbol, string []string;
//	any other array Array
//
// AppendValue takes Raw besides: one value that is encoded already.
type (
	// Symbol is an ASCII name from a constrained domain, AMQP 1.0 §1.6.21.
	Symbol string
	// UUID is 16 bytes in RFC 4122 (network) order, as the wire has them.
	UUID [16]byte
	// Timestamp is in milliseconds since 1970-01-01 UTC.
	Timestamp int64
	// Char is one UTF-32BE code point.
	Char uint32
	// Decimal32 is IEEE 754-2008 decimal32 as it stands on the wire; it is never computed with.
	Decimal32 [4]byte
	// Decimal64 is IEEE 754-2008 decimal64 as it stands on the wire.
	Decimal64 [8]byte
	// Decimal128 is IEEE 754-2008 decimal128 as it stands on the wire.
	Decimal128 [16]byte
	// List is an AMQP list: values of any type.
	List []any
	// Map is an AMQP map in wire order. Keys are not checked for being unique.
	Map []Pair
	// Raw is one complete encoded value, constructor first, or nil for an absent field. A Raw that
	// this package decoded has been checked in full and is a view.
	Raw []byte
)

// Pair is one entry of a Map.
type Pair struct {
	Key   any
	Value any
}

// Described is a value with a descriptor, AMQP 1.0 §1.3.2; the descriptor is a uint64 or a Symbol
// in all that is standardised, and may be any primitive.
type Described struct {
	Descriptor any
	Value      any
}

// Array is an array whose elements have no Go slice of their own. All items have the Go type that
// Code stands for; Descriptor is not nil for an array of described values, whose items are then the
// bare values. Null, as a descriptor, is a Raw.
type Array struct {
	// Code is the constructor byte of the elements on the wire, which an empty array has too.
	Code       byte
	Descriptor any
	Items      []any
}
