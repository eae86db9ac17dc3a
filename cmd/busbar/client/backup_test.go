package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// bank is an operations port that has images of two partitions, and takes them back. Its streams break as often as a test
// asks for.
type bank struct {
	*testing.T
	mu       sync.Mutex
	catalog  []byte
	images   map[uint16][]byte
	breaks   int            // streams that break off
	changes  bool           // a stream that is repeated is another one
	lies     bool           // the trailer is another one
	refuses  string         // what an image is refused with
	busy     int            // images that may be sent again
	wants    int            // partition whose image is wanted, 0 for all
	restored map[int][]byte // images that came whole
	asked    []string       // method and path of each request
	status   int            // of POST, 0 for 200
	finished bool
	late     int // ends of a restore that are answered 503
}

func newBank(t *testing.T) (*bank, string) {
	r := rand.NewChaCha8([32]byte{1})
	b := &bank{T: t, catalog: []byte(`{"format":1,"entities":[{"Name":"orders"}]}`), images: map[uint16][]byte{}, restored: map[int][]byte{}}
	for id, size := range map[uint16]int{1: 3<<20 + 17, 4: 1000} {
		b.images[id] = make([]byte, size)
		_, _ = r.Read(b.images[id]) // never fails
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/backups", b.start)
	mux.HandleFunc("GET /api/backups/b-1/catalog", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b.catalog) })
	mux.HandleFunc("GET /api/backups/b-1/partitions/{n}", b.image)
	mux.HandleFunc("DELETE /api/backups/b-1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /api/restores", b.restore)
	mux.HandleFunc("PUT /api/restores/r-1/partitions/{n}", b.put)
	mux.HandleFunc("POST /api/restores/r-1/finish", func(w http.ResponseWriter, _ *http.Request) {
		if b.late--; b.late >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":"no leader"}`)
			return
		}
		b.finished = true
		fmt.Fprint(w, `{"entities":[{"name":"orders","active":7,"deadLetters":1}]}`)
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.asked = append(b.asked, r.Method+" "+r.URL.RequestURI())
		b.mu.Unlock()
		if !strings.HasPrefix(r.Header.Get("Authorization"), "SharedAccessSignature ") {
			http.Error(w, `{"error":"no token"}`, http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return b, s.URL
}

func (b *bank) failing(w http.ResponseWriter) bool {
	if b.status != 0 {
		w.WriteHeader(b.status)
		fmt.Fprint(w, `{"error":"not now"}`)
	}
	return b.status != 0
}

func (b *bank) start(w http.ResponseWriter, _ *http.Request) {
	if !b.failing(w) {
		fmt.Fprint(w, `{"id":"b-1","cluster":"c-1","time":"2026-11-24T18:00:00Z","version":"v1","partitions":[`+
			`{"id":4,"index":44,"wall":"2026-11-24T17:59:58Z"},{"id":1,"index":11,"wall":"2026-11-24T17:59:59Z"}]}`)
	}
}

// broken takes one of the breaks.
func (b *bank) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breaks--
	return b.breaks >= 0
}

func (b *bank) image(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseUint(r.PathValue("n"), 10, 16)
	if err != nil {
		b.Error(err)
	}
	img := b.images[uint16(n)]
	w.Header().Set("Trailer", imageSum)
	if b.broken() {
		_, _ = w.Write(img[:len(img)*2/3])
		w.(http.Flusher).Flush()
		if b.changes {
			img[0]++
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(img)
	sum := sha256.Sum256(img)
	if b.lies {
		sum[0]++
	}
	w.Header().Set(imageSum, hex.EncodeToString(sum[:]))
}

func (b *bank) restore(w http.ResponseWriter, r *http.Request) {
	if b.failing(w) {
		return
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || !bytes.Equal(got, b.catalog) {
		b.Errorf("the catalog came as %q, %v", got, err)
	}
	partitions := "[1,4]"
	if r.URL.Query().Get("entity") != "" {
		partitions = "[4]"
	}
	fmt.Fprintf(w, `{"id":"r-1","partitions":%s,"entities":["orders","trade"]}`, partitions)
}

func (b *bank) put(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		b.Error(err)
	}
	if b.broken() {
		_, _ = io.CopyN(io.Discard, r.Body, 100)
		panic(http.ErrAbortHandler)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // it broke off, and is not whole
	}
	if b.wants != 0 && n != b.wants {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"the restore wants others"}`)
		return
	}
	if b.busy--; b.busy >= 0 {
		fmt.Fprint(w, `{"error":"no leader","retriable":true}`)
		return
	}
	if b.refuses != "" {
		fmt.Fprintf(w, "{\"share\":\"orders\",\"restored\":0,\"total\":9}\n{\"error\":%q}\n", b.refuses)
		return
	}
	b.mu.Lock()
	b.restored[n] = got
	b.mu.Unlock()
	fmt.Fprint(w, "{\"share\":\"orders\",\"restored\":4,\"total\":9}\n{\"share\":\"orders\",\"restored\":9,\"total\":9}\n{\"done\":true}\n")
}

// backupCLI runs busbar backup, and returns what it printed.
func backupCLI(t *testing.T, url string, stdin []byte, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true")
	t.Setenv("BUSBAR_OPS", url)
	root := &cobra.Command{Use: "busbar", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newBackupCommand(time.Millisecond))
	var out, errs bytes.Buffer
	root.SetArgs(append([]string{"backup"}, args...))
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetIn(bytes.NewReader(stdin))
	err := root.ExecuteContext(t.Context())
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	return out.String(), errs.String(), exit.Code(err)
}

// must wants success.
func must(t *testing.T, url string, stdin []byte, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, code := backupCLI(t, url, stdin, args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	return stdout, stderr
}

func (b *bank) wantRestored(ids ...uint16) {
	b.Helper()
	if len(b.restored) != len(ids) {
		b.Errorf("%d images were restored, want %d", len(b.restored), len(ids))
	}
	for _, id := range ids {
		if !bytes.Equal(b.restored[int(id)], b.images[id]) {
			b.Errorf("partition %d came back with %d bytes that are others", id, len(b.restored[int(id)]))
		}
	}
}

// A backup goes out and comes back: through a directory and through a pipe, with a connection that breaks twice.
func TestABackupGoesOutAndComesBack(t *testing.T) {
	b, url := newBank(t)
	dir := t.TempDir()
	b.breaks = 2
	out, warned := must(t, url, nil, "create", dir, "--name", "n", "-o", "json")
	var made createdBackup
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Files != 3 || made.Cluster != "c-1" || made.Encrypted ||
		made.Backup != filepath.Join(dir, "n") || made.Bytes != uint64(len(b.catalog)+len(b.images[1])+len(b.images[4])) {
		t.Errorf("create printed %s (%v)", out, err)
	}
	if !strings.Contains(warned, "WARNING: this backup is not encrypted") {
		t.Errorf("nobody is warned: %q", warned)
	}
	if last := b.asked[len(b.asked)-1]; last != "DELETE /api/backups/b-1" {
		t.Errorf("the last request is %s", last)
	}
	out, _ = must(t, url, nil, "list", dir)
	if got := strings.Join(strings.Fields(out), " "); !strings.Contains(got, fmt.Sprintf("n whole 2026-11-24T18:00:00Z c-1 2 %d no", made.Bytes)) {
		t.Errorf("list printed %s", got)
	}
	must(t, url, nil, "verify", filepath.Join(dir, "n"), "--checksums")
	b.breaks, b.busy = 2, 2
	out, _ = must(t, url, nil, "restore", filepath.Join(dir, "n"))
	if got, want := strings.Join(strings.Fields(out), " "), "ENTITY ACTIVE DEADLETTERS orders 7 1"; got != want || !b.finished {
		t.Errorf("restore printed %q, want %q; finished %v", got, want, b.finished)
	}
	b.wantRestored(1, 4)

	clear(b.restored)
	stream, said := must(t, url, nil, "create", "-")
	if !strings.Contains(said, "made a backup in a pipe") {
		t.Errorf("create - said %q", said)
	}
	must(t, url, []byte(stream), "verify", "-", "--checksums")
	must(t, url, []byte(stream), "restore", "-")
	b.wantRestored(1, 4)
}

func TestAnEncryptedBackup(t *testing.T) {
	b, url := newBank(t)
	dir := t.TempDir()
	phrase := filepath.Join(t.TempDir(), "phrase")
	if err := os.WriteFile(phrase, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stream, warned := must(t, url, nil, "create", "-", "--passphrase-file", phrase)
	if strings.Contains(warned, "WARNING") || strings.Contains(stream, "orders") {
		t.Errorf("warned %q, and the stream has a name: %v", warned, strings.Contains(stream, "orders"))
	}
	must(t, url, []byte(stream), "restore", "-", "--passphrase-file", phrase)
	b.wantRestored(1, 4)
	const to = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	must(t, url, nil, "create", dir, "--name", "n", "--recipient", to)
	if out, _ := must(t, url, nil, "list", dir); !strings.Contains(out, "encrypted") {
		t.Errorf("list printed %s", out)
	}
	for _, verb := range []string{"verify", "restore"} {
		if _, errs, code := backupCLI(t, url, nil, verb, filepath.Join(dir, "n")); code != exit.Unauthorised || !strings.Contains(errs, "is encrypted") {
			t.Errorf("%s without a key: %d, %s", verb, code, errs)
		}
	}
}

func TestOneEntityIsRestored(t *testing.T) {
	b, url := newBank(t)
	stream, _ := must(t, url, nil, "create", "-")
	must(t, url, []byte(stream), "restore", "-", "--entity", "orders", "--as", "copy")
	b.wantRestored(4)
	if !slices.Contains(b.asked, "POST /api/restores?as=copy&entity=orders") {
		t.Errorf("asked %q", b.asked)
	}
	clear(b.restored)
	b.finished = false
	out, _ := must(t, url, []byte(stream), "restore", "-", "--dry-run")
	if got := strings.Fields(out); !slices.Equal(got, []string{"ENTITY", "orders", "trade"}) || b.finished || len(b.restored) > 0 {
		t.Errorf("a dry run printed %q, finished %v, restored %d", got, b.finished, len(b.restored))
	}
	// What was begun is gone on with: the entities are not made again, and an image that is not wanted is passed over.
	b.asked, b.wants = nil, 4
	must(t, url, []byte(stream), "restore", "-", "--continue", "r-1")
	b.wantRestored(4)
	if want := []string{"PUT /api/restores/r-1/partitions/1", "PUT /api/restores/r-1/partitions/4", "POST /api/restores/r-1/finish"}; !slices.Equal(b.asked, want) {
		t.Errorf("asked %q, want %q", b.asked, want)
	}
}

func TestBackupsThatFail(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(*bank)
		args  []string // the directory is put for DIR, a good backup in it is n
		code  int
		words string
	}{
		{"a stream that breaks too often", func(b *bank) { b.breaks = 100 }, []string{"create", "DIR", "--name", "m"}, 1, "after 6 attempts"},
		{"a stream that changes", func(b *bank) { b.breaks, b.changes = 1, true }, []string{"create", "DIR", "--name", "m"}, 1,
			"bytes were others when it was repeated"},
		{"a wrong trailer", func(b *bank) { b.lies = true }, []string{"create", "DIR", "--name", "m"}, 1, "and what came has"},
		{"no leader", func(b *bank) { b.status = 503 }, []string{"create", "DIR", "--name", "m"}, 1, "after 6 attempts: /api/backups: 503: not now"},
		{"a name that is taken", nil, []string{"create", "DIR", "--name", "n"}, 4, "file exists"},
		{"a name with a slash", nil, []string{"create", "DIR", "--name", "../n"}, 2, "--name must be"},
		{"both kinds of encryption", nil, []string{"create", "DIR", "--recipient", "x"}, 2, "recipient: "},
		{"a pipe with a name", nil, []string{"create", "-", "--name", "n"}, 2, "has no name"},
		{"no such backup", nil, []string{"verify", "DIR/x"}, 3, "there is no backup DIR/x"},
		{"a place in the place of a backup", nil, []string{"verify", "DIR"}, 3, "is no backup: name one of those"},
		{"no such place", nil, []string{"list", "DIR/x"}, 3, "no such file"},
		{"a list of a pipe", nil, []string{"list", "-"}, 2, "a pipe has one backup"},
		{"images that are none", nil, []string{"verify", "DIR/n"}, 1, "the backup is damaged: 2 problems"},
		{"another output", nil, []string{"list", "DIR", "-o", "xml"}, 2, "none of table, wide"},
		{"a store that nobody knows", nil, []string{"list", "ftp://x"}, 2, "no kind of store ftp://"},
		{"--as alone", nil, []string{"restore", "DIR/n", "--as", "x"}, 2, "--as goes with --entity"},
		{"two ways at once", nil, []string{"restore", "DIR/n", "--continue", "x", "--dry-run"}, 2, "give neither --dry-run nor --entity"},
		{"a cluster with entities", func(b *bank) { b.status = 409 }, []string{"restore", "DIR/n"}, 4, "/api/restores: 409: not now"},
		{"an image that is refused", func(b *bank) { b.refuses = "too few partitions" }, []string{"restore", "DIR/n"}, 1,
			"too few partitions\nThe entities stay suspended. Go on by --continue r-1 at the same node, or resume and delete them: orders, trade"},
		{"a broken connection", func(b *bank) { b.breaks = 100 }, []string{"restore", "DIR/n"}, 1, "partition-1: after 6 attempts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, url := newBank(t)
			dir := t.TempDir()
			must(t, url, nil, "create", dir, "--name", "n")
			if c.set != nil {
				c.set(b)
			}
			args := slices.Clone(c.args)
			for i := range args {
				args[i] = strings.Replace(args[i], "DIR", dir, 1)
			}
			_, errs, code := backupCLI(t, url, nil, args...)
			if words := strings.Replace(c.words, "DIR", dir, 1); code != c.code || !strings.Contains(errs, words) {
				t.Errorf("exit code %d, want %d; %s\nwant %s", code, c.code, errs, words)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 1 {
				t.Errorf("the place has %d backups, want the good one alone (%v)", len(left), err)
			}
			if b.finished {
				t.Error("the restore was finished")
			}
		})
	}
}

// The end of a restore is asked for again while the cluster cannot answer it. A restore that could not begin for another
// reason than a refusal says that something of it may be left.
func TestARestoreIsPatientAtItsEnd(t *testing.T) {
	b, url := newBank(t)
	dir := t.TempDir()
	must(t, url, nil, "create", dir, "--name", "n")
	b.late = 3
	must(t, url, nil, "restore", filepath.Join(dir, "n"))
	if !b.finished || b.late >= 0 {
		t.Errorf("finished %v, %d refusals are left", b.finished, b.late)
	}
	b.status = 500
	_, errs, code := backupCLI(t, url, nil, "restore", filepath.Join(dir, "n"))
	if code != 1 || !strings.Contains(errs, "suspended entities of this restore: resume and delete them before you begin anew") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A token is not asked for on a port that needs none, and the error says what to give where it does.
func TestABackupWithoutAConnectionString(t *testing.T) {
	_, url := newBank(t)
	t.Setenv("BUSBAR_OPS", url)
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "")
	c := newBackupCommand(time.Millisecond)
	c.SetArgs([]string{"create", t.TempDir()})
	c.SetErr(io.Discard)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.ExecuteContext(t.Context())
	if exit.Code(err) != exit.Unauthorised || !strings.Contains(err.Error(), "give --connection-string") {
		t.Errorf("got %v", err)
	}
}

// Damage that is found on the way ends the restore of a pipe before it is finished, and a file that is damaged in a directory
// is found before anything is made.
func TestADamagedBackupIsNotRestored(t *testing.T) {
	b, url := newBank(t)
	dir := t.TempDir()
	must(t, url, nil, "create", dir, "--name", "n")
	path := filepath.Join(dir, "n", "partition-4")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole[500] ^= 1
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	b.asked = nil
	_, errs, code := backupCLI(t, url, nil, "restore", filepath.Join(dir, "n"))
	if want := "nothing was restored: partition-4 is damaged in chunk 0 at byte 32: its checksum is wrong"; code != 1 || !strings.Contains(errs, want) {
		t.Errorf("exit code %d: %s, want %s", code, errs, want)
	}
	if len(b.asked) > 0 {
		t.Errorf("the cluster was asked %q", b.asked)
	}
	out, _, code := backupCLI(t, url, nil, "verify", filepath.Join(dir, "n"), "--checksums", "-o", "json")
	var v verifiedBackup
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 1 || v.Whole || len(v.Files) != 3 || v.Files[1].Problem != "" ||
		v.Files[2].Problem != "partition-4 is damaged in chunk 0 at byte 32: its checksum is wrong" {
		t.Errorf("verify: exit code %d, %s (%v)", code, out, err)
	}

	stream, _ := must(t, url, nil, "create", "-")
	b.breaks = 1
	_, errs, code = backupCLI(t, url, []byte(stream), "restore", "-")
	if code != 1 || !strings.Contains(errs, "partition-1: operations port: ") || !strings.Contains(errs, "a pipe is read once") || b.finished {
		t.Errorf("a connection that broke: exit code %d, finished %v: %s", code, b.finished, errs)
	}
	for _, c := range []struct {
		name  string
		bytes []byte
		words string
	}{
		{"cut", []byte(stream[:len(stream)-1]), "backup.json is damaged in chunk 1 at byte"},
		{"flipped", append([]byte(stream[:1<<20]), append([]byte{stream[1<<20] ^ 1}, stream[1<<20+1:]...)...), "partition-1 is damaged in chunk 0"},
	} {
		b.finished = false
		_, errs, code := backupCLI(t, url, c.bytes, "restore", "-")
		if code != 1 || !strings.Contains(errs, c.words) || !strings.Contains(errs, "stay suspended") || b.finished {
			t.Errorf("%s: exit code %d, finished %v: %s", c.name, code, b.finished, errs)
		}
	}
}
