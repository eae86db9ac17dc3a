package fsm

import (
	"math/bits"

	"github.com/tidwall/btree"
)

const (
	// densePageLen is how many keys a page has.
	densePageLen = 64
	// denseFew is the number of values at which a page is given up and its values are kept without one. No value ever
	// takes the memory of more than seven.
	denseFew = 8
)

// dense is an ordered table of keys that are given in order and taken back in any, mostly the oldest first. Arrivals
// of messages and tickets of sessions are such keys. Values stand on pages by their number. A look-up takes one
// memory access, where an ordinary table takes ten that no cache has. The next value takes none. Values of given-up
// pages, and keys out of order, are in such a table.
//
// Like the tables of btree it is copied on write, by generations: see share.change. Reading changes
// nothing, so an image may be read while a later generation is written.
type dense[T any] struct {
	gen   uint64
	pages *btree.Map[uint64, *densePage[T]] // by number of the page, key / densePageLen
	few   *btree.Map[uint64, T]             // those without a page
	count int
	// tail is the number of the last page. It stays, empty or not, until there is another: a queue
	// through which one message after the other passes has one page.
	tail uint64
	// page is the one that was written to last, number its number.
	page   *densePage[T]
	number uint64
}

type densePage[T any] struct {
	gen   uint64
	used  uint64 // a bit for each value that counts
	items [densePageLen]T
}

func newDense[T any](gen uint64) *dense[T] {
	return &dense[T]{gen: gen, pages: new(btree.Map[uint64, *densePage[T]]), few: new(btree.Map[uint64, T])}
}

// Copy returns a table of a later generation with the same values; from then on the older is only read.
func (d *dense[T]) Copy(gen uint64) *dense[T] {
	c := *d
	c.gen, c.page = gen, nil
	c.pages, c.few = d.pages.Copy(), d.few.Copy()
	return &c
}

// Len returns the number of values.
func (d *dense[T]) Len() int { return d.count }

// find returns a page for reading, nil if there is none of that number.
func (d *dense[T]) find(number uint64) *densePage[T] {
	if d.page != nil && d.number == number {
		return d.page
	}
	p, _ := d.pages.Get(number)
	return p
}

// Get returns the value of a key.
func (d *dense[T]) Get(key uint64) (v T, ok bool) {
	p := d.find(key / densePageLen)
	if p == nil {
		return d.few.Get(key)
	}
	if i := key % densePageLen; p.used&(1<<i) != 0 {
		return p.items[i], true
	}
	return v, false
}

// writable makes page p for writing.
func (d *dense[T]) writable(number uint64, p *densePage[T]) *densePage[T] {
	if p.gen != d.gen {
		c := *p
		c.gen = d.gen
		p = &c
		d.pages.Set(number, p)
	}
	d.page, d.number = p, number
	return p
}

// Set sets the value of a key.
func (d *dense[T]) Set(key uint64, v T) {
	number, i := key/densePageLen, key%densePageLen
	p := d.find(number)
	if p == nil {
		if d.pages.Len() > 0 && number < d.tail {
			if _, had := d.few.Set(key, v); !had {
				d.count++
			}
			return
		}
		p = d.begin(number)
	}
	p = d.writable(number, p)
	if p.used&(1<<i) == 0 {
		d.count++
	}
	p.used |= 1 << i
	p.items[i] = v
}

// begin begins a page at the end.
func (d *dense[T]) begin(number uint64) *densePage[T] {
	old, more := d.pages.Get(d.tail)
	before := d.tail
	p := &densePage[T]{gen: d.gen}
	d.pages.Set(number, p)
	d.tail = number
	if more {
		d.giveUp(before, old)
	}
	return p
}

// giveUp keeps what is on a page without it, if that is little and the page is not the last one.
func (d *dense[T]) giveUp(number uint64, p *densePage[T]) {
	if number == d.tail || bits.OnesCount64(p.used) > denseFew {
		return
	}
	for used := p.used; used != 0; used &= used - 1 {
		i := bits.TrailingZeros64(used)
		d.few.Set(number*densePageLen+uint64(i), p.items[i])
	}
	d.pages.Delete(number)
	if d.number == number {
		d.page = nil
	}
}

// Delete removes a key and returns the value that it had.
func (d *dense[T]) Delete(key uint64) (v T, ok bool) {
	number, i := key/densePageLen, key%densePageLen
	p := d.find(number)
	if p == nil {
		if v, ok = d.few.Delete(key); ok {
			d.count--
		}
		return v, ok
	}
	if p.used&(1<<i) == 0 {
		return v, false
	}
	d.count--
	p = d.writable(number, p)
	var none T
	v, p.items[i] = p.items[i], none
	p.used &^= 1 << i
	d.giveUp(number, p)
	return v, true
}

// Min returns the lowest key with its value.
func (d *dense[T]) Min() (key uint64, v T, ok bool) {
	key, v, ok = d.few.Min()
	number, p, any := d.pages.Min()
	if !any || p.used == 0 || ok && key/densePageLen < number { // of an empty page there is no other
		return key, v, ok
	}
	i := bits.TrailingZeros64(p.used)
	return number*densePageLen + uint64(i), p.items[i], true
}

// PopMin removes the lowest key and returns it with its value.
func (d *dense[T]) PopMin() (key uint64, v T, ok bool) {
	if key, v, ok = d.Min(); ok {
		d.Delete(key)
	}
	return key, v, ok
}

// Scan calls f with all in the order of keys until it says no. It must not change the table.
func (d *dense[T]) Scan(f func(key uint64, v T) bool) { d.Ascend(0, f) }

// Ascend is Scan from a key on.
func (d *dense[T]) Ascend(from uint64, f func(key uint64, v T) bool) {
	it := d.few.Iter()
	few := d.few.Len() > 0 && it.Seek(from)
	going := true
	// those without a page that come before the page of that number
	before := func(number uint64) bool {
		for ; few && it.Key()/densePageLen < number; few = it.Next() {
			if going = f(it.Key(), it.Value()); !going {
				return false
			}
		}
		return true
	}
	d.pages.Ascend(from/densePageLen, func(number uint64, p *densePage[T]) bool {
		if !before(number) {
			return false
		}
		used := p.used
		if number == from/densePageLen {
			used &^= 1<<(from%densePageLen) - 1
		}
		for ; used != 0 && going; used &= used - 1 {
			i := bits.TrailingZeros64(used)
			going = f(number*densePageLen+uint64(i), p.items[i])
		}
		return going
	})
	if going {
		before(1<<64 - 1)
	}
}
