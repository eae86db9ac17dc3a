package backup

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var seed = flag.Uint64("seed", 1, "of the places that are damaged")

// flips is how many places of each form of a backup are changed.
const flips = 300

// region is a range of bytes that one check covers.
type region struct {
	file  string
	chunk int64 // -1 for a head
	from  int   // in the bytes that the region is in
	size  int
}

// regions are those of a file of chunks that begins at an offset, for so many bytes of content.
func regions(name string, at, content int) (out []region) {
	out = append(out, region{name, -1, at, headBytes})
	at += headBytes
	chunk := int64(0)
	for content > 0 {
		n := min(content, ChunkBytes)
		out = append(out, region{name, chunk, at, chunkHeadBytes + n})
		at, content, chunk = at+chunkHeadBytes+n, content-n, chunk+1
	}
	return append(out, region{name, chunk, at, chunkHeadBytes + 32})
}

// draw picks a byte. Half of the bytes are in the content of chunks, and half in what surrounds it.
func draw(r *rand.Rand, all []region) (region, int) {
	reg := all[r.IntN(len(all))]
	if r.IntN(2) == 0 && reg.size > chunkHeadBytes {
		return reg, reg.from + r.IntN(min(reg.size, headBytes))
	}
	return reg, reg.from + r.IntN(reg.size)
}

// TestEachFlippedByteIsFound changes one byte at a time, and wants the error to name its file and its chunk.
func TestEachFlippedByteIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 0))
	t.Logf("-seed=%d", *seed)
	files := sample(1)
	set := makeSet(t, nil, 1)
	places := map[string][]region{ManifestName: {{ManifestName, -1, 0, len(set[ManifestName])}}}
	for _, c := range files {
		places[c.name] = regions(c.name, 0, len(c.bytes))
	}
	names := append([]string{ManifestName}, CatalogName, "partition-1", "partition-2", "partition-7")
	for range flips {
		name := names[r.IntN(len(names))]
		reg, at := draw(r, places[name])
		changed := memory{}
		for n, b := range set {
			changed[n] = b
		}
		changed[name] = slices.Clone(set[name])
		bit := byte(1 << r.IntN(8))
		changed[name][at] ^= bit
		_, err := readSet(t.Context(), changed, nil)
		found(t, err, reg, fmt.Sprintf("bit %#x of byte %d of %s", bit, at, name))
	}

	stream := makeStream(t, nil, 1, files)
	var all []region
	at := 0
	for _, c := range files {
		all = append(all, regions(c.name, at, len(c.bytes))...)
		last := all[len(all)-1]
		at = last.from + last.size
	}
	all = append(all, regions(ManifestName, at, len(set[ManifestName]))...)
	if last := all[len(all)-1]; last.from+last.size != len(stream) {
		t.Fatalf("the stream has %d bytes, and the regions %d", len(stream), last.from+last.size)
	}
	for range flips {
		reg, at := draw(r, all)
		bit := byte(1 << r.IntN(8))
		stream[at] ^= bit
		_, err := readStream(t.Context(), stream, nil)
		found(t, err, reg, fmt.Sprintf("bit %#x of byte %d of the stream, in %s", bit, at, reg.file))
		stream[at] ^= bit
	}
}

func found(t *testing.T, err error, in region, what string) {
	t.Helper()
	var d *Damage
	if !errors.As(err, &d) {
		t.Errorf("%s: got %v, want damage", what, err)
		return
	}
	// The head of a file of a stream tells its name, so its own damage has none.
	if d.File != in.file && !(d.File == "" && in.chunk == -1) || d.Chunk != in.chunk {
		t.Errorf("%s: got %v, want %s in %s", what, err, in.file, where(in.chunk))
	}
}

// Encryption has checks of its own. A byte that is changed in an encrypted file is found whatever it is.
func TestEachFlippedByteOfAnEncryptedBackupIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 1))
	seal, keys := identity(t)
	stream := makeStream(t, seal, 1, sample(1)[:1])
	for range flips {
		at, bit := r.IntN(len(stream)), byte(1<<r.IntN(8))
		stream[at] ^= bit
		if _, err := readStream(t.Context(), stream, keys); err == nil {
			t.Errorf("bit %#x of byte %d was changed, and nobody noticed", bit, at)
		}
		stream[at] ^= bit
	}
	set := makeSet(t, seal, 1)
	for _, name := range []string{"partition-1.age", "partition-2.age", "backup.json.age"} {
		for range 20 {
			at := r.IntN(len(set[name]))
			set[name][at] ^= 0x10
			_, err := readSet(t.Context(), set, keys)
			if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, ".age")) {
				t.Errorf("byte %d of %s was changed: got %v", at, name, err)
			}
			set[name][at] ^= 0x10
		}
	}
}

func TestEachMissingEndIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 2))
	seal, keys := identity(t)
	set := makeSet(t, nil, 1)
	for name, whole := range set {
		for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1, r.IntN(len(whole))} {
			cut := clone(set)
			cut[name] = whole[:n]
			_, err := readSet(t.Context(), cut, nil)
			words := "it ends here"
			if name == ManifestName {
				words = "it does not end with its SHA-256"
			}
			damaged(t, err, name, words)
		}
		long := clone(set)
		long[name] = append(long[name], '\n')
		_, err := readSet(t.Context(), long, nil)
		words := "something follows its end"
		if name == ManifestName {
			words = "it does not end with its SHA-256"
		}
		damaged(t, err, name, words)
	}
	for _, s := range []*Seal{nil, seal} {
		stream := makeStream(t, s, 1, sample(1))
		for range 40 {
			n := r.IntN(len(stream))
			if _, err := readStream(t.Context(), stream[:n], keys); err == nil {
				t.Errorf("%d of %d bytes are a backup", n, len(stream))
			}
		}
		if _, err := readStream(t.Context(), append(stream, 0), keys); err == nil {
			t.Error("a byte behind the end was not found")
		}
	}
}

func TestExchangedPartsAreFound(t *testing.T) {
	set, other := makeSet(t, nil, 1), makeSet(t, nil, 2)
	const chunk = chunkHeadBytes + ChunkBytes
	for _, c := range []struct {
		name        string
		change      func(m memory)
		file, words string
	}{
		{"two chunks of a file", func(m memory) {
			b, a := m["partition-1"], set["partition-1"]
			copy(b[headBytes:], a[headBytes+chunk:headBytes+2*chunk])
			copy(b[headBytes+chunk:], a[headBytes:headBytes+chunk])
		}, "partition-1", "it is chunk 1"},
		{"a chunk twice", func(m memory) {
			copy(m["partition-1"][headBytes+chunk:], set["partition-1"][headBytes:headBytes+chunk])
		}, "partition-1", "it is chunk 0"},
		{"a chunk less", func(m memory) {
			m["partition-1"] = slices.Delete(m["partition-1"], headBytes+chunk, headBytes+2*chunk)
		}, "partition-1", "it is chunk 2"},
		{"a chunk of another file", func(m memory) {
			copy(m["partition-1"][headBytes:], set["partition-7"][headBytes:headBytes+chunk])
		}, "partition-1", "it is a chunk of file 7"},
		{"the same chunk of another backup", func(m memory) {
			copy(m["partition-1"][headBytes:], other["partition-1"][headBytes:headBytes+chunk])
		}, "partition-1", "the SHA-256 of the file is another one"},
		{"two files", func(m memory) {
			m["partition-1"], m["partition-7"] = set["partition-7"], set["partition-1"]
		}, "partition-1", "it is the file partition-7"},
		{"a file of another backup", func(m memory) { m["partition-7"] = other["partition-7"] }, "partition-7", "it is of the backup"},
		{"a file of another backup with the same id", func(m memory) {
			b := makeStream(t, nil, 1, []content{{CatalogName, []byte("{}")}})
			m[CatalogName] = b[:headBytes+chunkHeadBytes+2+chunkHeadBytes+32]
		}, CatalogName, "backup.json names a file of 25 bytes"},
		{"backup.json of another backup", func(m memory) { m[ManifestName] = other[ManifestName] }, CatalogName, "it is of the backup"},
		{"a file less", func(m memory) { delete(m, "partition-2") }, "partition-2", "it is not there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := clone(set)
			c.change(m)
			_, err := readSet(t.Context(), m, nil)
			damaged(t, err, c.file, c.words)
		})
	}
}

// In a pipe the same is found, because backup.json names the order.
func TestExchangedFilesOfAPipeAreFound(t *testing.T) {
	files := []content{{CatalogName, []byte("{}")}, {"partition-1", []byte("one")}, {"partition-2", []byte("two")}}
	whole := makeStream(t, nil, 1, files)
	var at []int
	n := 0
	for _, c := range files {
		at = append(at, n)
		n += headBytes + 2*chunkHeadBytes + len(c.bytes) + 32
	}
	at = append(at, n)
	part := func(b []byte, i int) []byte { return b[at[i]:at[i+1]] }
	end := whole[n:]
	other := makeStream(t, nil, 2, files)
	for _, c := range []struct {
		name        string
		stream      []byte
		file, words string
	}{
		{"two files", slices.Concat(part(whole, 0), part(whole, 2), part(whole, 1), end), "partition-2", "backup.json names in its place partition-1"},
		{"a file less", slices.Concat(part(whole, 0), part(whole, 2), end), ManifestName, "it names 3 files, and there were 2"},
		{"a file twice", slices.Concat(part(whole, 0), part(whole, 1), part(whole, 1), part(whole, 2), end), ManifestName, "there were 4"},
		{"a file of another backup", slices.Concat(part(whole, 0), part(other, 1), part(whole, 2), end), "partition-1", "it is of the backup"},
		{"backup.json of another backup", slices.Concat(part(whole, 0), part(whole, 1), part(whole, 2), other[n:]), ManifestName,
			"it is of the backup"},
		{"no backup.json", whole[:n], "", "it ends here"},
		{"nothing", nil, "", "it ends here"},
		{"something else", []byte(strings.Repeat("x", 100)), "", "does not begin as a file of a backup does"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readStream(t.Context(), c.stream, nil)
			damaged(t, err, c.file, c.words)
		})
	}
}
