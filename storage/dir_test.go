package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func openDir(t *testing.T, cfg Config) *Dir {
	t.Helper()
	d, err := Open(cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestValidateReportsEveryProblem(t *testing.T) {
	cfg := Config{Log: "pebble", LogSegmentBytes: 1, BodySegmentBytes: 1 << 40, BodyCacheBytes: -1,
		Hard: map[string]int{"../hash": 1, "../a": 1, "../b": 1, "../c": 1}}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for range 20 {
		if again := cfg.Validate(); again.Error() != err.Error() {
			t.Fatalf("the problems come in another order:\n%v\n\n%v", err, again)
		}
	}
	for _, word := range []string{"Dir ", "Log ", "LogSegmentBytes", "BodySegmentBytes", "BodyCacheBytes",
		"RetainSnapshots", "../hash"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not mentioned in %v", word, err)
		}
	}
	good := Defaults()
	good.Dir = "x"
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
}

// R8
func TestIdentityIsDrawnOnceAndKept(t *testing.T) {
	cfg := testConfig(filepath.Join(t.TempDir(), "a", "b"))
	d := openDir(t, cfg)
	id := d.NodeID()
	if len(id) != 36 {
		t.Fatalf("identity %q", id)
	}
	info, err := os.Stat(cfg.Dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if again := openDir(t, cfg).NodeID(); again != id {
		t.Fatalf("identity was %s, is %s", id, again)
	}
	if other := openDir(t, testConfig(t.TempDir())).NodeID(); other == id {
		t.Fatal("two directories have one identity")
	}
}

// TestSecondProcessHearsWhoHoldsTheDirectory starts this test again as another process.
func TestSecondProcessHearsWhoHoldsTheDirectory(t *testing.T) {
	if dir := os.Getenv("BUSBAR_TEST_LOCKED_DIR"); dir != "" {
		_, err := Open(testConfig(dir), hclog.NewNullLogger())
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getppid() {
			t.Fatalf("got %v, want the process %d", err, os.Getppid())
		}
		return
	}
	cfg := testConfig(t.TempDir())
	d := openDir(t, cfg)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondProcessHearsWhoHoldsTheDirectory$") //nolint:gosec // ourselves
	cmd.Env = append(os.Environ(), "BUSBAR_TEST_LOCKED_DIR="+cfg.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	openDir(t, cfg)
}

// The cluster version of a directory rises, is judged before everything else, and is the only setting that may differ.
func TestADirectoryTellsItsClusterVersion(t *testing.T) {
	cfg := Defaults()
	cfg.Dir, cfg.Hard = filepath.Join(t.TempDir(), "data"), map[string]int{"hash": 1}
	knows := 0
	cfg.AdmitVersion = func(version int) error {
		if version > knows {
			return fmt.Errorf("version %d is not known", version)
		}
		return nil
	}
	d := openDir(t, cfg)
	fresh, err := os.ReadFile(filepath.Join(cfg.Dir, hardFile))
	if err != nil || strings.Contains(string(fresh), versionSetting) || d.Version() != 0 {
		t.Fatalf("a new directory tells version %d: %s, %v", d.Version(), fresh, err)
	}
	for _, to := range []int{101, 101, 100, 205} {
		if err := d.KeepVersion(to); err != nil {
			t.Fatal(err)
		}
	}
	if d.Version() != 205 {
		t.Errorf("version %d", d.Version())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.KeepVersion(300); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed directory: %v", err)
	}
	other := cfg
	other.Hard = map[string]int{"hash": 2} // not a word of that: the program is too old for any of it
	if _, err := Open(other, hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), "version 205 is not known") {
		t.Errorf("a program that does not know the version: %v", err)
	}
	cfg.AdmitVersion = nil
	other.AdmitVersion = nil
	var hard *HardError
	if _, err := Open(other, hclog.NewNullLogger()); !errors.As(err, &hard) || strings.Contains(err.Error(), versionSetting) {
		t.Errorf("another hash: %v", err)
	}
	knows = 205
	if d = openDir(t, cfg); d.Version() != 205 {
		t.Errorf("version %d after a restart", d.Version())
	}
	cfg.Dir, cfg.FirstVersion = filepath.Join(t.TempDir(), "other"), 200
	if d = openDir(t, cfg); d.Version() != 200 {
		t.Errorf("a new directory of a later program tells %d", d.Version())
	}
	d.Close()
	if d = openDir(t, cfg); d.Version() != 200 {
		t.Errorf("the same opened again tells %d", d.Version())
	}
}

func TestHardSettingsThatDifferRefuseToStart(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"another log", func(c *Config) { c.Log = LogBolt }, []string{`log: disk has "wal", configured "boltdb"`}},
		{"another hash", func(c *Config) { c.Hard = map[string]int{"hash": 2, "entry": 1} },
			[]string{"hash: disk has 1, program has 2"}},
		{"a setting that the disk does not know", func(c *Config) {
			c.Hard = map[string]int{"hash": 1, "entry": 1, "new": 3}
		}, []string{"new: disk has none, program has 3"}},
		{"several", func(c *Config) { c.Log = LogBolt; c.Hard = map[string]int{"hash": 7} },
			[]string{"log:", "hash: disk has 1, program has 7", "entry: disk has 1, program has none"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			cfg.Hard = map[string]int{"hash": 1, "entry": 1}
			if err := openDir(t, cfg).Close(); err != nil {
				t.Fatal(err)
			}
			tt.change(&cfg)
			_, err := Open(cfg, hclog.NewNullLogger())
			var hard *HardError
			if !errors.As(err, &hard) || len(hard.Diffs) != len(tt.want) {
				t.Fatalf("got %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

func TestLostOrDamagedFilesAreNeverReplaced(t *testing.T) {
	tests := []struct {
		name, file, text string
		damage           func(t *testing.T, name string)
	}{
		{"identity lost", identityFile, "missing", removeFile},
		{"hard settings lost", hardFile, "missing", removeFile},
		{"records of groups lost, with all groups", replicasDir, "missing", func(t *testing.T, name string) {
			for _, dir := range []string{name, filepath.Join(filepath.Dir(name), groupsDir)} {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"identity flipped", identityFile, "corrupt", flipFile},
		{"hard settings flipped", hardFile, "corrupt", flipFile},
		{"identity cut", identityFile, "corrupt", func(t *testing.T, name string) { truncate(t, name, 10) }},
		{"identity empty", identityFile, "corrupt", func(t *testing.T, name string) { truncate(t, name, 0) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			d := openDir(t, cfg)
			if _, err := d.Group(1); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, filepath.Join(cfg.Dir, tt.file))
			_, err := Open(cfg, hclog.NewNullLogger())
			if err == nil || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), tt.file) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func removeFile(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func flipFile(t *testing.T, name string) {
	t.Helper()
	flipAt(t, name, 12)
}

func flipAt(t *testing.T, name string, at int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x10
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}

// A20
func TestWriteOnceKeepsTheFirst(t *testing.T) {
	cfg := testConfig(t.TempDir())
	d := openDir(t, cfg)
	if _, err := d.Read("members"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
	for range 2 {
		if err := d.WriteOnce("members", []byte("a\nb\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.WriteOnce("members", []byte("a\nc\n")); !errors.Is(err, ErrWritten) || !errors.Is(err, fs.ErrExist) {
		t.Fatalf("got %v", err)
	}
	if err := d.WriteOnce("empty", nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, cfg)
	for name, want := range map[string]string{"members": "a\nb\n", "empty": ""} {
		if got, err := d.Read(name); err != nil || string(got) != want {
			t.Fatalf("%s is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "../identity.json", "a/b", ".hidden", "x.tmp", strings.Repeat("a", 65)} {
		if err := d.WriteOnce(name, []byte("x")); err == nil {
			t.Fatalf("%q is taken as a name", name)
		}
	}
}

func TestGroupsAreListedOpenedOnceAndDropped(t *testing.T) {
	cfg := testConfig(t.TempDir())
	d := openDir(t, cfg)
	for _, id := range []uint16{7, 0, 65535} {
		if _, err := d.Group(id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Group(7); !errors.Is(err, ErrGroupOpen) {
		t.Fatalf("got %v", err)
	}
	if err := d.DropGroup(7); !errors.Is(err, ErrGroupOpen) {
		t.Fatalf("got %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Group(9); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
	d = openDir(t, cfg)
	got, err := d.Groups()
	if err != nil || !slices.Equal(got, []uint16{0, 7, 65535}) {
		t.Fatalf("groups %v, %v", got, err)
	}
	g, err := d.Group(7)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}
	if err := d.DropGroup(7); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Groups(); err != nil || !slices.Equal(got, []uint16{0, 65535}) {
		t.Fatalf("groups %v, %v", got, err)
	}
	// A crash in the middle of a drop leaves a directory under another name; the next start ends it.
	half := filepath.Join(cfg.Dir, groupsDir, "00007"+droppedSuffix)
	if err := os.MkdirAll(filepath.Join(half, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	openDir(t, cfg)
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
}

func TestDamagedGroupDoesNotOpenAndHoldsNothing(t *testing.T) {
	d := openDir(t, testConfig(t.TempDir()))
	g, err := d.Group(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Log().StoreLog(entry(1, 1, "x")); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	flipFile(t, filepath.Join(d.groupDir(1), "log"+logEndSuffix))
	for range 2 { // the second time, no file is locked by the first
		if _, err := d.Group(1); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("got %v", err)
		}
	}
	if err := d.DropGroup(1); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Group(1); err != nil {
		t.Fatal(err)
	}
}

func TestClosedGroupAnswersErrClosed(t *testing.T) {
	d := openDir(t, testConfig(t.TempDir()))
	g, err := d.Group(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	_, readErr := g.Bodies().Read(1, 0, 1)
	_, lastErr := g.Log().LastIndex()
	_, getErr := g.Stable().Get([]byte("x"))
	for name, err := range map[string]error{
		"log read": g.Log().GetLog(1, &raft.Log{}), "log write": g.Log().StoreLog(&raft.Log{Index: 1, Term: 1}),
		"last": lastErr, "get": getErr, "set": g.Stable().Set([]byte("x"), nil),
		"body read": readErr, "body write": g.Bodies().Put(1, []byte("x"), Whole([]byte("x"))),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestSpaceIsThatOfTheDisk(t *testing.T) {
	d := openDir(t, testConfig(t.TempDir()))
	free, total, err := d.Space()
	if err != nil || free == 0 || free > total {
		t.Fatalf("%d of %d bytes free, %v", free, total, err)
	}
}
