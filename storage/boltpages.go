package storage

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// Layout of the pages of a bolt file behind the metas. A page begins with its number, its kind, how many elements it
// has and how many pages it takes beyond one. An element of either tree page has 16 bytes. It says how far behind its
// own beginning its key is; in a leaf the value stands behind the key.
const (
	boltBranch   = 1
	boltLeaf     = 2
	boltFreelist = 16

	boltElement  = 16
	boltBucket   = 1  // flag of an element of a leaf: the value is a bucket
	boltInBucket = 16 // of that value: the root of the bucket, 0 if its only page stands behind, and a counter

	boltNoFreelist = 1<<64 - 1
	boltManyFree   = 0xFFFF // the true number is the first element
	boltMaxDepth   = 32     // of branches and buckets; a log of 2^64 bytes needs fewer
)

// boltPages goes through the pages of a bolt file that can be reached. Bolt follows numbers on a page wherever they
// point to, in mapped memory and beyond it. One flipped bit makes it read the bytes of another page, or take an entry
// for absent. So nothing is given to it of which the bounds are not known.
type boltPages struct {
	f     io.ReaderAt
	page  uint64 // bytes
	pages uint64 // in use or free; not fewer bytes are there
	taken []uint64
}

// checkBoltPages verifies all pages that the newer meta refers to. Every page must be at its place, in bounds, and
// used once, by a tree or by the list of free ones; and that no element reaches out of its page. It reads heads and
// elements, not values. The metas are good.
func checkBoltPages(f *os.File, page int64, first, second []byte) error {
	m := first
	if binary.LittleEndian.Uint64(second[48:]) > binary.LittleEndian.Uint64(first[48:]) {
		m = second
	}
	p := &boltPages{f: f, page: uint64(page), pages: binary.LittleEndian.Uint64(m[40:])}
	p.taken = make([]uint64, p.pages/64+1)
	p.taken[0] = 1<<0 | 1<<1 // the metas
	if free := binary.LittleEndian.Uint64(m[32:]); free != boltNoFreelist {
		if err := p.freelist(free); err != nil {
			return err
		}
	}
	return p.tree(binary.LittleEndian.Uint64(m[16:]), 0)
}

func boltDamage(id uint64, text string, args ...any) error {
	return fmt.Errorf("%w: page %d: %s", ErrCorrupt, id, fmt.Sprintf(text, args...))
}

// take notes that n pages from id on have found their user.
func (p *boltPages) take(id, n uint64) error {
	if id >= p.pages || n > p.pages-id {
		return boltDamage(id, "%d pages, the file has %d", n, p.pages)
	}
	for i := id; i < id+n; i++ {
		if p.taken[i/64]&(1<<(i%64)) != 0 {
			return boltDamage(i, "used twice")
		}
		p.taken[i/64] |= 1 << (i % 64)
	}
	return nil
}

// boltPage is the beginning of a page, with all elements.
type boltPage struct {
	id, size uint64 // size is that of the whole page with those it takes beyond one
	kind     uint16
	count    uint64
	head     []byte
}

// read reads the page with that number and takes it. All kinds but the list of free pages have
// elements of 16 bytes.
func (p *boltPages) read(id uint64) (boltPage, error) {
	if id >= p.pages {
		return boltPage{}, boltDamage(id, "the file has %d", p.pages)
	}
	b := make([]byte, p.page)
	if err := readFull(p.f, b, int64(id*p.page)); err != nil {
		return boltPage{}, err
	}
	g := parseBoltPage(b)
	if g.id != id {
		return boltPage{}, boltDamage(id, "says that it is page %d", g.id)
	}
	beyond := uint64(binary.LittleEndian.Uint32(b[12:]))
	g.size = (beyond + 1) * p.page
	if err := p.take(id, beyond+1); err != nil {
		return boltPage{}, err
	}
	elements := uint64(boltElement)
	if g.kind == boltFreelist {
		elements = 8
		if g.count == boltManyFree {
			g.count = 1 + min(binary.LittleEndian.Uint64(b[boltPageHeader:]), g.size)
		}
	}
	if g.count > (g.size-boltPageHeader)/elements {
		return boltPage{}, boltDamage(id, "%d elements in %d bytes", g.count, g.size)
	}
	if end := boltPageHeader + g.count*elements; end > p.page {
		g.head = make([]byte, end)
		if err := readFull(p.f, g.head, int64(id*p.page)); err != nil {
			return boltPage{}, err
		}
	}
	return g, nil
}

// parseBoltPage reads the head of a page of which b is the beginning or all.
func parseBoltPage(b []byte) boltPage {
	return boltPage{
		id: binary.LittleEndian.Uint64(b), kind: binary.LittleEndian.Uint16(b[8:]),
		count: uint64(binary.LittleEndian.Uint16(b[10:])), size: uint64(len(b)), head: b,
	}
}

func (p *boltPages) freelist(id uint64) error {
	g, err := p.read(id)
	if err != nil {
		return err
	}
	if g.kind != boltFreelist {
		return boltDamage(id, "kind %d is not the list of free pages", g.kind)
	}
	at := uint64(boltPageHeader)
	if binary.LittleEndian.Uint16(g.head[10:]) == boltManyFree {
		at += 8
	}
	for ; at < boltPageHeader+8*g.count; at += 8 {
		if err := p.take(binary.LittleEndian.Uint64(g.head[at:]), 1); err != nil {
			return err
		}
	}
	return nil
}

// tree verifies a page of a tree, with all below it.
func (p *boltPages) tree(id uint64, depth int) error {
	if depth > boltMaxDepth {
		return boltDamage(id, "%d levels", depth)
	}
	g, err := p.read(id)
	if err != nil {
		return err
	}
	switch g.kind {
	case boltLeaf:
		return p.leaf(&g, func(value, bytes uint64) error {
			return p.bucket(id, int64(id*p.page+value), bytes, depth)
		})
	case boltBranch:
		return p.branch(&g, depth)
	}
	return boltDamage(id, "kind %d is not one of a tree", g.kind)
}

func (p *boltPages) branch(g *boltPage, depth int) error {
	if g.count == 0 {
		return boltDamage(g.id, "a branch without a leaf")
	}
	for i := range g.count {
		at := boltPageHeader + i*boltElement
		e := g.head[at:]
		if at+u32(e)+u32(e[4:]) > g.size {
			return boltDamage(g.id, "key %d reaches out of it", i)
		}
		if err := p.tree(binary.LittleEndian.Uint64(e[8:]), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaf verifies a leaf; bucket verifies a bucket that is described there on it.
func (p *boltPages) leaf(g *boltPage, bucket func(value, bytes uint64) error) error {
	for i := range g.count {
		at := boltPageHeader + i*boltElement
		e := g.head[at:]
		value, bytes := at+u32(e[4:])+u32(e[8:]), u32(e[12:])
		if value+bytes > g.size {
			return boltDamage(g.id, "element %d reaches out of it", i)
		}
		switch flags := binary.LittleEndian.Uint32(e); flags {
		case 0:
		case boltBucket:
			if err := bucket(value, bytes); err != nil {
				return err
			}
		default:
			return boltDamage(g.id, "element %d has flags %d", i, flags)
		}
	}
	return nil
}

// bucket verifies the bucket whose description begins at that byte of the file. If its only page stands
// there too, that one has no buckets.
func (p *boltPages) bucket(id uint64, from int64, bytes uint64, depth int) error {
	if bytes < boltInBucket || bytes > p.page {
		return boltDamage(id, "a bucket of %d bytes", bytes)
	}
	b := make([]byte, bytes)
	if err := readFull(p.f, b, from); err != nil {
		return err
	}
	if root := binary.LittleEndian.Uint64(b); root != 0 {
		return p.tree(root, depth+1)
	}
	if b = b[boltInBucket:]; len(b) < boltPageHeader {
		return boltDamage(id, "a bucket without a page")
	}
	in := parseBoltPage(b)
	in.id = id
	if in.kind != boltLeaf || in.count > (in.size-boltPageHeader)/boltElement {
		return boltDamage(id, "a bucket of kind %d, %d elements in %d bytes", in.kind, in.count, in.size)
	}
	return p.leaf(&in, func(uint64, uint64) error { return boltDamage(id, "a bucket in a small one") })
}

func u32(b []byte) uint64 { return uint64(binary.LittleEndian.Uint32(b)) }
