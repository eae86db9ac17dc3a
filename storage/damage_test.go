package storage_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/storage"
)

// damaged is a whole node's directory: two groups with logs, votes, snapshots and bodies.
type damaged struct {
	cfg storage.Config
}

const damagedEntries = 60

func damagedEntry(i uint64) []byte { return bytesOf(i, 400) }

func (d *damaged) fill(t *testing.T) {
	t.Helper()
	dir, err := storage.Open(d.cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(dir.WriteOnce("members", []byte("n1 n2 n3")))
	_, err = dir.Witness("n2", storage.Sighting{Life: 7, Incarnation: 8})
	must(err)
	g, err := dir.Group(1)
	must(err)
	must(g.Stable().SetUint64([]byte("CurrentTerm"), 5))
	must(g.Stable().SetUint64([]byte("LastVoteTerm"), 5))
	must(g.Stable().Set([]byte("LastVoteCand"), []byte("n2")))
	for i := uint64(1); i <= damagedEntries; i++ {
		must(g.Log().StoreLog(&raft.Log{Index: i, Term: 1 + i/20, Data: damagedEntry(i)}))
		must(g.Bodies().Put(i, damagedEntry(i), []storage.Span{{Offset: 10, Length: 100}, {Offset: 200, Length: 50}}))
		g.Bodies().Free(i, 10, 100)
		if i%20 == 0 {
			must(takeSnapshotAs(&storage.Replica{Bodies: g.Bodies(), Snapshots: g.Snapshots()}, i, 1+i/20))
		}
	}
	// The older of the two snapshots is of no use without these.
	must(g.Log().DeleteRange(1, damagedEntries-15))
	must(g.Close())
	must(dir.Close())
}

// read returns a digest of everything in the directory, or the first error.
func (d *damaged) read() (digest string, err error) {
	dir, err := storage.Open(d.cfg, hclog.NewNullLogger())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	h := sha256.New()
	members, err := dir.Read("members")
	if err != nil {
		return "", err
	}
	seen, err := dir.Witness("n2", storage.Sighting{})
	if err != nil {
		return "", err
	}
	_, _ = fmt.Fprintln(h, dir.NodeID(), string(members), seen)
	g, err := dir.Group(1)
	if err != nil {
		return "", err
	}
	term, err1 := g.Stable().GetUint64([]byte("CurrentTerm"))
	vote, err2 := g.Stable().GetUint64([]byte("LastVoteTerm"))
	candidate, err3 := g.Stable().Get([]byte("LastVoteCand"))
	last, err4 := g.Log().LastIndex()
	first, err5 := g.Log().FirstIndex()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return "", err
	}
	_, _ = fmt.Fprintln(h, term, vote, string(candidate), last)
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := g.Log().GetLog(i, &l); err != nil {
			return "", err
		}
		_, _ = fmt.Fprintln(h, l.Index, l.Term, l.Data)
	}
	if err := d.readSnapshots(h, g); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

func (d *damaged) readSnapshots(h io.Writer, g *storage.Group) error {
	r := &storage.Replica{Bodies: g.Bodies(), Snapshots: g.Snapshots()}
	metas, err := r.Snapshots.List()
	if err != nil {
		return err
	}
	if len(metas) == 0 {
		return errors.New("no snapshot")
	}
	_, rc, err := r.Snapshots.Open(metas[0].ID) // as another node would get it
	if err == nil {
		_, err = io.Copy(h, rc)
		err = errors.Join(err, rc.Close())
	}
	if err != nil {
		return err
	}
	index, err := restoreNewest(r)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(h, index, metas[0].Term, metas[0].Configuration)
	for i := uint64(1); i <= index; i++ {
		b, err := r.Bodies.Read(i, 200, 50)
		if err != nil {
			return err
		}
		_, _ = h.Write(b)
	}
	return nil
}

// TestNoDamageIsServed flips bits in, cuts, and takes away every file of a node: whatever is read
// afterwards is what was written, or an error.
func TestNoDamageIsServed(t *testing.T) {
	const placesPerFile = 14
	for _, kind := range []string{storage.LogWAL, storage.LogBolt} {
		t.Run(kind, func(t *testing.T) {
			root := t.TempDir()
			whole := filepath.Join(root, "whole")
			cfg := storage.Defaults()
			cfg.Dir, cfg.Log, cfg.LogSegmentBytes, cfg.BodyCacheBytes = whole, kind, 1<<20, 0
			cfg.BodySegmentBytes = 8 << 10
			d := &damaged{cfg: cfg}
			d.fill(t)
			want := d.digest(t, whole, filepath.Join(root, "first"))
			rng := newRand(t)
			places, found := map[string]int{}, map[string]int{}
			for _, name := range files(t, whole) {
				text, err := os.ReadFile(filepath.Join(whole, name))
				if err != nil {
					t.Fatal(err)
				}
				used := len(bytes.TrimRight(text, "\x00"))
				for i := range placesPerFile {
					bad := bytes.Clone(text)
					what := ""
					switch {
					case i == 0 && name == "witness.json":
						continue // what this node knew of others is forgotten
					case i == 0:
						bad, what = nil, "is gone"
					case i == 1:
						bad, what = bad[:0], "is empty"
					case i == 2:
						bad, what = bad[:used/2], "ends in its middle"
					case i == 3:
						bad, what = bad[:max(0, used-1)], "lacks its last byte"
					case i == 4 && used > 512:
						at := rng.IntN(used - 511)
						clear(bad[at : at+512])
						what = fmt.Sprintf("has zeros at %d", at)
					default:
						at := rng.IntN(max(used, 1))
						bad[at] ^= 1 << rng.IntN(8)
						what = fmt.Sprintf("has another bit at %d", at)
					}
					dir := filepath.Join(root, "bad")
					copyDir(t, whole, dir)
					file := filepath.Join(dir, name)
					if bad == nil {
						err = os.Remove(file)
					} else {
						err = os.WriteFile(file, bad, 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
					places[kindOf(name)]++
					d.cfg.Dir = dir
					got, err := d.read()
					switch {
					case err != nil:
						found[kindOf(name)]++
					case got != want:
						t.Errorf("%s %s, and something else is served", name, what)
					}
				}
			}
			total := 0
			for k, n := range places {
				total += n
				t.Logf("%-12s %3d places, %3d found", k, n, found[k])
				if found[k] == 0 {
					t.Errorf("no damage to a file of the kind %s was found", k)
				}
			}
			if total < 200 {
				t.Errorf("%d places", total)
			}
		})
	}
}

// digest reads a copy, because reading starts a life.
func (d *damaged) digest(t *testing.T, whole, dir string) string {
	t.Helper()
	copyDir(t, whole, dir)
	d.cfg.Dir = dir
	got, err := d.read()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func files(t *testing.T, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "LOCK" {
			name, _ := filepath.Rel(root, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// kindOf names what a file is by its directory and ending.
func kindOf(name string) string {
	switch base := filepath.Base(name); {
	case strings.HasSuffix(name, ".json"), strings.HasSuffix(base, ".end"):
		return strings.TrimLeft(base, "0123456789")
	case strings.HasPrefix(name, "once"):
		return "once"
	default:
		return strings.TrimLeft(filepath.Ext(name), ".") + " " + filepath.Base(filepath.Dir(name))
	}
}
