package fsm

import "errors"

// ErrFormat is wrapped by every decoding error: the bytes are not of this format or version.
var ErrFormat = errors.New("malformed bytes")

// AppendEntry appends the versioned binary form of e (docs/formats/entry.md).
func AppendEntry(dst []byte, e *Entry) []byte { panic("codec") }

// DecodeEntry decodes what AppendEntry wrote. Byte fields of the result are views into b; message
// bodies get their BodyOffset in b.
func DecodeEntry(b []byte) (*Entry, error) { panic("codec") }

// AppendRequest appends one request alone, for another node.
func AppendRequest(dst []byte, r *Request) []byte { panic("codec") }

// DecodeRequest decodes one request; byte fields are views into b.
func DecodeRequest(b []byte) (Request, error) { panic("codec") }

// AppendOutcome appends an outcome. Bodies of deliveries travel with it if withBodies is set; the
// remembered form of a result is written without.
func AppendOutcome(dst []byte, o *Outcome, withBodies bool) []byte { panic("codec") }

// DecodeOutcome decodes an outcome; byte fields are views into b.
func DecodeOutcome(b []byte) (Outcome, error) { panic("codec") }

// AppendQuery appends a query request.
func AppendQuery(dst []byte, q *QueryRequest) []byte { panic("codec") }

// DecodeQuery decodes a query request; byte fields are views into b.
func DecodeQuery(b []byte) (QueryRequest, error) { panic("codec") }

// AppendAnswer appends an answer with its bodies.
func AppendAnswer(dst []byte, a *Answer) []byte { panic("codec") }

// DecodeAnswer decodes an answer; byte fields are views into b.
func DecodeAnswer(b []byte) (Answer, error) { panic("codec") }

// AppendDescriptor appends an entity descriptor.
func AppendDescriptor(dst []byte, d *Descriptor) []byte { panic("codec") }

// DecodeDescriptor decodes a descriptor.
func DecodeDescriptor(b []byte) (Descriptor, error) { panic("codec") }
