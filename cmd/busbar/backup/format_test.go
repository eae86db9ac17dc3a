package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden file")

const golden = "testdata/pipe.hex"

// TestGolden: a backup in a pipe has these bytes, and these bytes are that backup.
func TestGolden(t *testing.T) {
	files := []content{{CatalogName, []byte("{}")}, {"partition-3", []byte("image and bodies")}}
	b := makeStream(t, nil, 1, files)
	text := annotate(t, b)
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	var bytesOf []byte
	for line := range strings.Lines(string(want)) {
		digits, _, _ := strings.Cut(line, "#")
		part, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatal(err)
		}
		bytesOf = append(bytesOf, part...)
	}
	got, err := readStream(t.Context(), bytesOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, files)
}

// annotate writes the bytes of a pipe field by field. It shares no code with the reader.
func annotate(t *testing.T, b []byte) string {
	t.Helper()
	var out strings.Builder
	take := func(n int, note string) []byte {
		if n > len(b) {
			t.Fatalf("%s: %d bytes are left, want %d", note, len(b), n)
		}
		part := b[:n]
		b = b[n:]
		for i := 0; i < n; i += 32 {
			fmt.Fprintf(&out, "%x", part[i:min(n, i+32)])
			if i == 0 {
				fmt.Fprintf(&out, " # %s", note)
			}
			out.WriteByte('\n')
		}
		return part
	}
	for len(b) > 0 {
		take(4, "a file")
		take(4, "format")
		take(4, "number of the file: the partition, 0 for the catalog, ffffffff for backup.json")
		take(16, "id of the backup")
		take(4, "CRC of the head")
		for length := 1; length > 0; {
			take(4, "a chunk: number of the file")
			take(4, "number of the chunk")
			length = int(binary.LittleEndian.Uint32(take(4, "length, 0 in the last chunk")))
			take(4, "CRC of the chunk")
			if length == 0 {
				take(32, "SHA-256 of the content")
			} else {
				take(length, "content")
			}
		}
	}
	return out.String()
}

func TestManifestsThatNoBackupHas(t *testing.T) {
	sealText := func(text string) string {
		text = strings.TrimSuffix(text, "}")
		return fmt.Sprintf("%s,\"sha256\":\"%x\"}\n", text, sha256.Sum256([]byte(text)))
	}
	const id = `"id":"00000000000000000000000000000001","created":"2026-11-24T18:00:00Z","cluster":"c","version":"v"`
	zero := strings.Repeat("0", 64)
	file := func(name string, bytes, chunks int) string {
		return fmt.Sprintf(`{"name":%q,"bytes":%d,"chunks":%d,"sha256":%q}`, name, bytes, chunks, zero)
	}
	of := func(files ...string) string {
		return sealText(`{"format":1,` + id + `,"files":[` + strings.Join(files, ",") + `]}`)
	}
	if _, err := parseManifest([]byte(of(file("catalog", 1, 1), file("partition-1", 0, 0), file("partition-65535", ChunkBytes+1, 2)))); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "does not end with its SHA-256"},
		{"no sum", "{}\n", "does not end with its SHA-256"},
		{"another sum", strings.Replace(of(file("catalog", 1, 1)), `"cluster":"c"`, `"cluster":"d"`, 1), "its SHA-256 is another one"},
		{"no JSON", sealText(`{"format":1,`), "invalid character"},
		{"an unknown field", sealText(`{"format":1,"base":1}`), "unknown field"},
		{"a newer format", sealText(`{"format":2}`), "format 2, and this program reads format 1"},
		{"no catalog", of(file("partition-1", 1, 1)), "its first file is not the catalog"},
		{"no files", of(), "its first file is not the catalog"},
		{"out of order", of(file("catalog", 1, 1), file("partition-2", 1, 1), file("partition-1", 1, 1)), "partition-1 does not stand in order"},
		{"twice", of(file("catalog", 1, 1), file("catalog", 1, 1)), "catalog does not stand in order"},
		{"a path", of(file("catalog", 1, 1), file("partition-1/../../x", 1, 1)), "no file has the name"},
		{"partition 0", of(file("catalog", 1, 1), file("partition-0", 1, 1)), "no file has the name"},
		{"a zero in front", of(file("catalog", 1, 1), file("partition-01", 1, 1)), "no file has the name"},
		{"partition 65536", of(file("catalog", 1, 1), file("partition-65536", 1, 1)), "no file has the name"},
		{"too few chunks", of(file("catalog", ChunkBytes+1, 1)), "1048577 bytes in 1 chunks"},
		{"a short id", sealText(`{"format":1,"id":"01"}`), "an id of 2 digits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parseManifest([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := readManifest(io.LimitReader(endless{}, 1<<40)); err == nil || !strings.Contains(err.Error(), "larger than any") {
		t.Errorf("an endless one: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A length is not believed before it is checked, and a chunk in the middle is full.
func TestChunksThatNoWriterWrites(t *testing.T) {
	head := makeStream(t, nil, 1, sample(1)[:1])[:headBytes]
	chunk := func(number, length uint32, content string) []byte {
		b := make([]byte, chunkHeadBytes, chunkHeadBytes+len(content))
		binary.LittleEndian.PutUint32(b[4:], number)
		binary.LittleEndian.PutUint32(b[8:], length)
		b = append(b, content...)
		binary.LittleEndian.PutUint32(b[12:], chunkSum(b, b[chunkHeadBytes:]))
		return b
	}
	for _, c := range []struct {
		name string
		rest []byte
		want string
	}{
		{"4 GiB", chunk(0, 1<<32-1, "x"), "it claims to have 4294967295 bytes, at most 1048576 are allowed"},
		{"a byte too many", chunk(0, ChunkBytes+1, "x"), "it claims to have 1048577 bytes"},
		{"a short chunk in the middle", slices.Concat(chunk(0, 1, "a"), chunk(1, 1, "b")), "the chunk before it is not full"},
		{"a wrong sum", chunk(0, 0, strings.Repeat("x", 32)), "the SHA-256 of the file is another one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := newFileReader(bytes.NewReader(slices.Concat(head, c.rest)), CatalogName)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, f)
			damaged(t, err, CatalogName, c.want)
		})
	}
	newer := slices.Clone(head)
	newer[4] = 2
	binary.LittleEndian.PutUint32(newer[headBytes-4:], crc32.Checksum(newer[:headBytes-4], castagnoli))
	if _, err := newFileReader(bytes.NewReader(newer), CatalogName); err == nil || IsDamage(err) || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("a newer format: %v", err)
	}
}

// FuzzReader reads anything as a backup in a pipe: as it is, and with its checksums made right, so that what stands behind
// them is reached. A backup that is read to its end is written again as the same bytes.
func FuzzReader(f *testing.F) {
	f.Add(makeStream(f, nil, 1, []content{{CatalogName, []byte("{}")}, {"partition-3", []byte("image and bodies")}}))
	f.Add(makeStream(f, nil, 1, []content{{CatalogName, nil}}))
	f.Add([]byte(ageIntro + "\n-> X25519 AAAA\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, mend(b)} {
			s, err := OpenStream(bytes.NewReader(b), nil)
			if err != nil {
				continue
			}
			files, err := readAll(t.Context(), s)
			if err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("a bare %v", err)
				}
				continue
			}
			var again bytes.Buffer
			m, err := MakeStream(&again, nil, *s.Manifest())
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range files {
				if err := m.Add(t.Context(), s.Manifest().Files[i], bytes.NewReader(c.bytes)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := m.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := readStream(t.Context(), again.Bytes(), nil)
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, files)
		}
	})
}

// mend computes the checksums of heads and chunks anew.
func mend(b []byte) []byte {
	b = slices.Clone(b)
	for at := 0; at+headBytes <= len(b); {
		binary.LittleEndian.PutUint32(b[at+headBytes-4:], crc32.Checksum(b[at:at+headBytes-4], castagnoli))
		at += headBytes
		for last := false; !last && at+chunkHeadBytes <= len(b); {
			n := int(binary.LittleEndian.Uint32(b[at+8:]))
			if last = n == 0; last {
				n = sha256.Size
			}
			end := at + chunkHeadBytes + n
			if n > ChunkBytes || end > len(b) {
				return b
			}
			binary.LittleEndian.PutUint32(b[at+12:], chunkSum(b[at:], b[at+chunkHeadBytes:end]))
			at = end
		}
	}
	return b
}

// FuzzManifest reads anything as backup.json, and gives it the right sum.
func FuzzManifest(f *testing.F) {
	m := about(1)
	m.Format, m.Files = Format, []File{{Name: CatalogName}, {Name: "partition-1", Index: 3}}
	good, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if at := len(b) - sumTailLen; at > 0 {
			sum := sha256.Sum256(b[:at])
			b = slices.Concat(b[:at], []byte(sumField), []byte(hex.EncodeToString(sum[:])), []byte(sumEnd))
		}
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseManifest(again); err != nil {
			t.Fatal(err)
		}
	})
}
