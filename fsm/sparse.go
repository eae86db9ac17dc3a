package fsm

import (
	"math/bits"

	"github.com/tidwall/btree"
)

const (
	// sparsePageLen is how many keys a page covers: a bit of a word for each.
	sparsePageLen = 64
	// sparseFew is the number of values at which a page gives up a large array. No value ever takes the memory of more
	// than sixteen.
	sparseFew = 8
)

// sparse is an ordered table of keys that come and go. Few are there at a time, and those near each other: the locks of
// messages by arrival. A page covers a range of keys and holds the values that are there, in order. A change moves the
// values behind it on its page. An ordinary table moves as many, and searches for longer.
//
// The table is copied on write by generations, as dense is. Reading changes nothing.
type sparse[T any] struct {
	gen   uint64
	pages *btree.Map[uint64, *sparsePage[T]] // by number of the page, key / sparsePageLen
	count int
	// page is the one that was written to last, number its number.
	page   *sparsePage[T]
	number uint64
	spare  []T // a large array that a page gave up, empty, for the next page that needs one
}

type sparsePage[T any] struct {
	gen    uint64
	used   uint64 // a bit for each key that is there
	values []T    // of those keys, in their order
}

func newSparse[T any](gen uint64) *sparse[T] {
	return &sparse[T]{gen: gen, pages: new(btree.Map[uint64, *sparsePage[T]])}
}

// Copy returns a table of a later generation with the same values; from then on the older is only read.
func (d *sparse[T]) Copy(gen uint64) *sparse[T] {
	c := *d
	c.gen, c.pages = gen, d.pages.Copy()
	return &c
}

// Len returns the number of values.
func (d *sparse[T]) Len() int { return d.count }

// find returns a page for reading, nil if there is none of that number.
func (d *sparse[T]) find(number uint64) *sparsePage[T] {
	if d.page != nil && d.number == number {
		return d.page
	}
	p, _ := d.pages.Get(number)
	return p
}

// place returns where the value of a key is on the page or belongs, and the bit of the key.
func (p *sparsePage[T]) place(key uint64) (at int, bit uint64) {
	bit = 1 << (key % sparsePageLen)
	return bits.OnesCount64(p.used & (bit - 1)), bit
}

// Get returns the value of a key.
func (d *sparse[T]) Get(key uint64) (v T, ok bool) {
	if p := d.find(key / sparsePageLen); p != nil {
		if at, bit := p.place(key); p.used&bit != 0 {
			return p.values[at], true
		}
	}
	return v, false
}

// writable makes page p for writing.
func (d *sparse[T]) writable(number uint64, p *sparsePage[T]) *sparsePage[T] {
	if p.gen != d.gen {
		p = &sparsePage[T]{gen: d.gen, used: p.used, values: append([]T(nil), p.values...)}
		d.pages.Set(number, p)
	}
	d.page, d.number = p, number
	return p
}

// Set sets the value of a key.
func (d *sparse[T]) Set(key uint64, v T) {
	number := key / sparsePageLen
	p := d.find(number)
	if p == nil {
		p = &sparsePage[T]{gen: d.gen}
		d.pages.Load(number, p)
	}
	p = d.writable(number, p)
	at, bit := p.place(key)
	if p.used&bit != 0 {
		p.values[at] = v
		return
	}
	d.count++
	p.used |= bit
	if len(p.values) == sparseFew && d.spare != nil {
		p.values, d.spare = append(d.spare, p.values...), nil
	}
	p.values = append(p.values, v)
	if last := len(p.values) - 1; at < last {
		copy(p.values[at+1:], p.values[at:last])
		p.values[at] = v
	}
}

// Delete removes a key and returns the value that it had.
func (d *sparse[T]) Delete(key uint64) (v T, ok bool) {
	number := key / sparsePageLen
	p := d.find(number)
	if p == nil {
		return v, false
	}
	at, bit := p.place(key)
	if p.used&bit == 0 {
		return v, false
	}
	d.count--
	p = d.writable(number, p)
	v = p.values[at]
	var none T
	last := len(p.values) - 1
	copy(p.values[at:], p.values[at+1:])
	p.values[last] = none
	p.values = p.values[:last]
	p.used &^= bit
	d.thin(number, p)
	return v, true
}

// thin gives up a page without values, and the large array of one with few.
func (d *sparse[T]) thin(number uint64, p *sparsePage[T]) {
	switch few := len(p.values); {
	case few == 0:
		d.pages.Delete(number)
		d.page = nil
	case few == sparseFew && cap(p.values) > 2*sparseFew:
		values := append(make([]T, 0, sparseFew), p.values...)
		clear(p.values)
		d.spare, p.values = p.values[:0], values
	}
}

// Scan calls f with all in the order of keys until it says no. It must not change the table.
func (d *sparse[T]) Scan(f func(key uint64, v T) bool) { d.Ascend(0, f) }

// Ascend is Scan from a key on.
func (d *sparse[T]) Ascend(from uint64, f func(key uint64, v T) bool) {
	d.pages.Ascend(from/sparsePageLen, func(number uint64, p *sparsePage[T]) bool {
		used, at := p.used, 0
		if number == from/sparsePageLen {
			var first uint64
			at, first = p.place(from)
			used &^= first - 1
		}
		for ; used != 0; used &= used - 1 {
			if !f(number*sparsePageLen+uint64(bits.TrailingZeros64(used)), p.values[at]) {
				return false
			}
			at++
		}
		return true
	})
}
