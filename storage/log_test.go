package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func logConfig(t *testing.T, kind string) Config {
	cfg := testConfig(t.TempDir())
	cfg.Log = kind
	return cfg
}

func mustOpenLog(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := openLog(cfg.Dir, cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func entry(index, term uint64, data string) *raft.Log {
	return &raft.Log{Index: index, Term: term, Data: []byte(data)}
}

func forBothLogs(t *testing.T, f func(t *testing.T, cfg Config)) {
	for _, kind := range []string{LogWAL, LogBolt} {
		t.Run(kind, func(t *testing.T) { f(t, logConfig(t, kind)) })
	}
}

func TestLogGivesBackWhatWasStored(t *testing.T) {
	forBothLogs(t, func(t *testing.T, cfg Config) {
		l := mustOpenLog(t, cfg)
		logs := []*raft.Log{
			{Index: 1, Term: 1, Type: raft.LogNoop},
			{Index: 2, Term: 1, Data: []byte("data"), Extensions: []byte("ext"), AppendedAt: time.Unix(5, 0)},
			{Index: 3, Term: 4, Type: raft.LogConfiguration, Data: bytes.Repeat([]byte("x"), 100_000)},
		}
		if err := l.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		if string(logs[1].Extensions) != "ext" {
			t.Fatal("the caller's entry was changed")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpenLog(t, cfg)
		for _, want := range logs {
			var got raft.Log
			if err := l.GetLog(want.Index, &got); err != nil {
				t.Fatal(err)
			}
			if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type ||
				!bytes.Equal(got.Data, want.Data) || !bytes.Equal(got.Extensions, want.Extensions) ||
				!got.AppendedAt.Equal(want.AppendedAt) {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		}
		if err := l.GetLog(4, &raft.Log{}); err != raft.ErrLogNotFound { //nolint:errorlint // raft compares so
			t.Fatalf("got %v", err)
		}
		if !l.IsMonotonic() {
			t.Fatal("the log is not monotonic")
		}
	})
}

// R3: whatever reached the disk, nothing follows a failed write.
func TestLogTakesNothingAfterAnError(t *testing.T) {
	tests := []struct {
		name string
		bad  *raft.Log
	}{
		{"a hole", entry(4, 1, "x")},
		{"an entry that is there", entry(2, 1, "x")},
		{"a term that goes back", entry(3, 0, "x")},
		{"an entry of impossible size", &raft.Log{Index: 3, Term: 1, Data: make([]byte, maxEntryBytes+1)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			forBothLogs(t, func(t *testing.T, cfg Config) {
				l := mustOpenLog(t, cfg)
				if err := l.StoreLogs([]*raft.Log{entry(1, 1, "a"), entry(2, 1, "b")}); err != nil {
					t.Fatal(err)
				}
				if err := l.StoreLog(tt.bad); err == nil {
					t.Fatal("no error")
				}
				if err := l.StoreLog(entry(3, 1, "good")); err == nil {
					t.Fatal("the log goes on after an error")
				}
				if err := l.DeleteRange(1, 1); err == nil {
					t.Fatal("the log deletes after an error")
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if last, err := mustOpenLog(t, cfg).LastIndex(); err != nil || last != 2 {
					t.Fatalf("last index %d, %v", last, err)
				}
			})
		})
	}
}

func TestLogAfterDeletion(t *testing.T) {
	tests := []struct {
		name        string
		lo, hi      uint64
		next        *raft.Log
		first, last uint64
	}{
		{"a prefix goes", 1, 4, entry(11, 5, "n"), 5, 11},
		{"a suffix goes and a newer term takes its place", 6, 10, entry(6, 9, "n"), 1, 6},
		{"everything goes and the log begins elsewhere", 1, 10, entry(500, 9, "n"), 500, 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			forBothLogs(t, func(t *testing.T, cfg Config) {
				l := mustOpenLog(t, cfg)
				for i := uint64(1); i <= 10; i++ {
					if err := l.StoreLog(entry(i, i/2, "e")); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.DeleteRange(tt.lo, tt.hi); err != nil {
					t.Fatal(err)
				}
				for i := tt.lo; i <= tt.hi; i++ {
					err := l.GetLog(i, &raft.Log{})
					if err != raft.ErrLogNotFound { //nolint:errorlint // raft compares so
						t.Fatalf("entry %d was deleted: %v", i, err)
					}
				}
				if err := l.StoreLog(tt.next); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					first, _ := l.FirstIndex()
					last, err := l.LastIndex()
					if err != nil || first != tt.first || last != tt.last {
						t.Fatalf("entries %d to %d, %v, want %d to %d", first, last, err, tt.first, tt.last)
					}
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					l = mustOpenLog(t, cfg)
				}
			})
		})
	}
}

// A killed process leaves no word of where the log ended, and then a torn last write is no damage.
func TestKilledProcessLeavesALogThatOpens(t *testing.T) {
	forBothLogs(t, func(t *testing.T, cfg Config) {
		l := mustOpenLog(t, cfg)
		if err := l.StoreLogs([]*raft.Log{entry(1, 1, "a"), entry(2, 1, "b")}); err != nil {
			t.Fatal(err)
		}
		if err := l.closer.Close(); err != nil { // not ours: nothing is said
			t.Fatal(err)
		}
		for range 2 {
			l = mustOpenLog(t, cfg)
			if last, err := l.LastIndex(); err != nil || last != 2 {
				t.Fatalf("last index %d, %v", last, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeSmall(osFS{}, l.name+logEndSuffix, []byte(`{"index":3,"term":1}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := openLog(cfg.Dir, cfg, hclog.NewNullLogger()); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("got %v", err)
		}
	})
}

// TestDamagedEntryIsFound flips a bit of each entry in turn: no entry is ever given out wrong.
func TestDamagedEntryIsFound(t *testing.T) {
	forBothLogs(t, func(t *testing.T, cfg Config) {
		l := mustOpenLog(t, cfg)
		const n = 12
		for i := uint64(1); i <= n; i++ {
			if err := l.StoreLog(entry(i, 1, fmt.Sprintf("needle-%02d-%0200d", i, i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(cfg.Dir, "log.db")
		if cfg.Log == LogWAL {
			names, err := filepath.Glob(filepath.Join(cfg.Dir, "log", "*.wal"))
			if err != nil || len(names) != 1 {
				t.Fatal(names, err)
			}
			name = names[0]
		}
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= n; i++ {
			bad := bytes.Clone(good)
			for at := 0; ; { // bolt has old copies of a page
				next := bytes.Index(bad[at:], fmt.Appendf(nil, "needle-%02d-", i))
				if next < 0 {
					break
				}
				at += next
				bad[at+50] ^= 4
				at += 10
			}
			if err := os.WriteFile(name, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := openLog(cfg.Dir, cfg, hclog.NewNullLogger())
			if err == nil {
				t.Errorf("entry %d of %d is damaged and the log opens", i, n)
				_ = l.Close()
				continue
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
	})
}

// Below our checks, the library stores what a broken disk or an old bug may have left there.
func TestLogThatIsNoLogIsNotOpened(t *testing.T) {
	sealed := func(index, term uint64) *raft.Log {
		s := sealEntry(entry(index, term, "e"))
		return &s
	}
	tests := []struct {
		name string
		logs []*raft.Log
	}{
		{"terms go back (R3)", []*raft.Log{sealed(1, 2), sealed(2, 3), sealed(3, 2)}},
		{"a hole", []*raft.Log{sealed(1, 1), sealed(2, 1), sealed(4, 1)}},
		{"no checksum", []*raft.Log{sealed(1, 1), entry(2, 1, "e")}},
		{"the checksum of another entry", []*raft.Log{sealed(1, 1), {Index: 2, Term: 1, Data: []byte("e"),
			Extensions: sealed(1, 1).Extensions}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := logConfig(t, LogBolt)
			b, err := openBolt(filepath.Join(cfg.Dir, "log.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.StoreLogs(tt.logs), b.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := openLog(cfg.Dir, cfg, hclog.NewNullLogger()); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// TestLogIsMadeToFitTheSnapshot: a crash may leave the log that an installed snapshot was to
// replace (R7).
func TestLogIsMadeToFitTheSnapshot(t *testing.T) {
	tests := []struct {
		name        string
		from, to    uint64 // entries of term 2
		snap        position
		first, last uint64
		corrupt     bool
	}{
		{"no snapshot", 1, 5, position{}, 1, 5, false},
		{"the log goes on behind the snapshot", 3, 9, position{6, 2}, 3, 9, false},
		{"the log begins right behind the snapshot", 7, 9, position{6, 2}, 7, 9, false},
		{"the log ends below the snapshot", 1, 5, position{8, 2}, 0, 0, false},
		{"the log conflicts with the snapshot", 1, 20, position{8, 3}, 0, 0, false},
		{"entries between the snapshot and the log are lost", 8, 9, position{6, 2}, 0, 0, true},
		{"the beginning is lost and there is no snapshot", 2, 9, position{}, 0, 0, true},
		{"no log", 0, 0, position{6, 2}, 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			forBothLogs(t, func(t *testing.T, cfg Config) {
				l := mustOpenLog(t, cfg)
				for i := tt.from; i <= tt.to && i > 0; i++ {
					if err := l.StoreLog(entry(i, 2, "e")); err != nil {
						t.Fatal(err)
					}
				}
				err := l.reconcile(tt.snap)
				if errors.Is(err, ErrCorrupt) != tt.corrupt || err != nil && !tt.corrupt {
					t.Fatalf("got %v", err)
				}
				if tt.corrupt {
					return
				}
				first, _ := l.FirstIndex()
				last, _ := l.LastIndex()
				if last != tt.last || last > 0 && first != tt.first {
					t.Fatalf("entries %d to %d, want %d to %d", first, last, tt.first, tt.last)
				}
				if tt.snap.index > 0 {
					next := entry(max(last, tt.snap.index)+1, 5, "next")
					if err := l.StoreLog(next); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

func mustOpenStable(t *testing.T, name string) *Stable {
	t.Helper()
	s, err := openStable(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// R9, RUL-14: raft writes term and candidate one after the other; a crash in between leaves no vote
// in that term, never the old candidate in the new term.
func TestVoteIsOneValue(t *testing.T) {
	name := filepath.Join(t.TempDir(), "votes.db")
	s := mustOpenStable(t, name)
	vote := func() (uint64, string) {
		term, err := s.GetUint64([]byte(keyVoteTerm))
		if err != nil && err.Error() != "not found" {
			t.Fatal(err)
		}
		candidate, err := s.Get([]byte(keyVoteCandidate))
		if err != nil && err.Error() != "not found" {
			t.Fatal(err)
		}
		return term, string(candidate)
	}
	want := func(term uint64, candidate string) {
		t.Helper()
		if gotTerm, got := vote(); gotTerm != term || got != candidate {
			t.Fatalf("voted for %q in %d, want %q in %d", got, gotTerm, candidate, term)
		}
	}
	set := func(f error) {
		t.Helper()
		if f != nil {
			t.Fatal(f)
		}
	}
	want(0, "")
	set(s.SetUint64([]byte("CurrentTerm"), 5))
	set(s.SetUint64([]byte(keyVoteTerm), 5))
	want(0, "")
	set(s.Set([]byte(keyVoteCandidate), []byte("a")))
	want(5, "a")

	set(s.SetUint64([]byte("CurrentTerm"), 6))
	set(s.SetUint64([]byte(keyVoteTerm), 6))
	set(s.Close()) // the crash
	s = mustOpenStable(t, name)
	want(5, "a")
	if term, err := s.GetUint64([]byte("CurrentTerm")); err != nil || term != 6 {
		t.Fatalf("current term %d, %v", term, err)
	}
	if err := s.Set([]byte(keyVoteCandidate), []byte("b")); err == nil {
		t.Fatal("a candidate without a term is a vote")
	}
}

func TestMissingKeyIsNotFoundToTheLetter(t *testing.T) {
	s := mustOpenStable(t, filepath.Join(t.TempDir(), "votes.db"))
	for _, key := range []string{"CurrentTerm", keyVoteTerm, keyVoteCandidate} {
		_, err := s.Get([]byte(key))
		_, err2 := s.GetUint64([]byte(key))
		if err == nil || err.Error() != "not found" || err2 == nil || err2.Error() != "not found" {
			t.Fatalf("%s: %v, %v", key, err, err2)
		}
	}
}

func TestDamagedVoteIsAnError(t *testing.T) {
	sealed := func(b ...byte) []byte { return binary.LittleEndian.AppendUint32(b, sum(b)) }
	whole := encodeStable(map[string][]byte{"CurrentTerm": make([]byte, 8)})
	tests := []struct {
		name   string
		stored []byte
	}{
		{"nothing", nil},
		{"another checksum", append(whole[:len(whole)-1:len(whole)-1], whole[len(whole)-1]^1)},
		{"another version", sealed(9)},
		{"a key without a value", sealed(formatStable, 1, 'k')},
		{"a value longer than there is", sealed(formatStable, 1, 'k', 9, 'v')},
		{"a length that never ends", sealed(formatStable, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "votes.db")
			s := mustOpenStable(t, name)
			if err := errors.Join(s.store.Set([]byte(keyState), tt.stored), s.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := openStable(name); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("got %v", err)
			}
		})
	}
	t.Run("a number of seven bytes", func(t *testing.T) {
		s := mustOpenStable(t, filepath.Join(t.TempDir(), "votes.db"))
		if err := s.Set([]byte("CurrentTerm"), make([]byte, 7)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.GetUint64([]byte("CurrentTerm")); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("got %v", err)
		}
	})
}

// Every bit of the metas, and a good many of the rest: the newest vote is there, or an error. bolt by
// itself goes back by a commit when the newer of its metas is damaged.
func TestDamagedFileOfVotesNeverGoesBack(t *testing.T) {
	name := filepath.Join(t.TempDir(), "votes.db")
	s := mustOpenStable(t, name)
	for term := uint64(1); term <= 9; term++ {
		if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), term),
			s.SetUint64([]byte(keyVoteTerm), term), s.Set([]byte(keyVoteCandidate), []byte("n2"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for at := 0; at < len(good); at++ {
		if (at >= 2*page || at%page > 80) && at%131 != 0 {
			continue
		}
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		// A new file each time: one that made bolt panic stays locked.
		name := filepath.Join(t.TempDir(), "votes.db")
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openStable(name)
		if err != nil {
			continue
		}
		term, err1 := s.GetUint64([]byte("CurrentTerm"))
		vote, err2 := s.GetUint64([]byte(keyVoteTerm))
		if err := errors.Join(err1, err2); err != nil || term != 9 || vote != 9 {
			t.Fatalf("with a bit at %d: term %d, vote in %d, %v", at, term, vote, err)
		}
		_ = s.Close()
	}
}

func TestBrokenBoltFileIsAnErrorNotAPanic(t *testing.T) {
	name := filepath.Join(t.TempDir(), "votes.db")
	if err := mustOpenStable(t, name).Close(); err != nil {
		t.Fatal(err)
	}
	for at := int64(16); at < 16<<10; at += 97 {
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		flipAt(t, name, at)
		if s, err := openStable(name); err == nil {
			_, _ = s.Get([]byte("CurrentTerm"))
			_ = s.Close()
		}
		if err := os.WriteFile(name, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
