package amqp

// Opt is a field that tells absent (null on the wire) from its zero value. It is a plain value,
// so reading one costs no allocation.
type Opt[T any] struct {
	Value T
	Set   bool
}

// Some returns a field that is present.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Set: true} }

// Or returns the value, or the default when the field is absent.
func (o Opt[T]) Or(absent T) T {
	if o.Set {
		return o.Value
	}
	return absent
}
