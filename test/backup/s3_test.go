package backup

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/busbar-mq/busbar/cmd/busbar/backup"
)

// keyID is what the server lets in. It does not check signatures, so this package looks at the name of the key.
const keyID = "BUSBARTEST"

var credential = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/[a-z0-9-]+/s3/aws4_request,`)

// server is a store like S3 in memory, behind what a test does to its answers.
type server struct {
	*testing.T
	url   string
	roots *x509.CertPool

	mu     sync.Mutex
	asked  []string                                                                           // method and path
	change func(http.ResponseWriter, *http.Request, func(http.ResponseWriter, *http.Request)) // nil for nothing
}

func newServer(t *testing.T) *server {
	s := &server{T: t}
	store := s3mem.New()
	if err := store.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	inner := gofakes3.New(store, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	// Over TLS, as everywhere: without it the client signs each piece of a body, which this server cannot take apart.
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.Path)
		change := s.change
		s.mu.Unlock()
		who := credential.FindStringSubmatch(r.Header.Get("Authorization"))
		switch {
		case who == nil || who[1] != keyID:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>no</Message></Error>`)
		case change != nil:
			change(w, r, inner.ServeHTTP)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close)
	s.url, s.roots = h.URL, x509.NewCertPool()
	s.roots.AddCert(h.Certificate())
	t.Setenv("AWS_ACCESS_KEY_ID", keyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "")
	return s
}

func (s *server) open(place string) backup.Store {
	s.Helper()
	// Parts are as small as S3 lets them be, so that an object has several.
	store, err := backup.OpenStore(place, backup.Options{Endpoint: s.url, Region: "eu-north-1", PartBytes: 5 << 20,
		TLS: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}})
	if err != nil {
		s.Fatal(err)
	}
	return store
}

// set sets what happens to requests from now on, and forgets those before.
func (s *server) set(change func(http.ResponseWriter, *http.Request, func(http.ResponseWriter, *http.Request))) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change, s.asked = change, nil
}

var files = []string{"catalog", "partition-1", "partition-2"}

func contents() map[string][]byte {
	r := rand.NewChaCha8([32]byte{7})
	large := make([]byte, 12<<20)
	_, _ = r.Read(large) // never fails
	return map[string][]byte{"catalog": []byte(`{"entities":[]}`), "partition-1": large, "partition-2": {}}
}

func (s *server) make(store backup.Store, name string) {
	s.Helper()
	m, err := backup.Make(s.Context(), store, name, nil, backup.Manifest{ID: backup.ID{1}, Created: time.Unix(1_800_000_000, 0).UTC()})
	if err != nil {
		s.Fatal(err)
	}
	all := contents()
	for _, f := range files {
		if err := m.Add(s.Context(), backup.File{Name: f}, bytes.NewReader(all[f])); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := m.Finish(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// read reads a whole backup.
func (s *server) read(store backup.Store, name string) (map[string][]byte, error) {
	set, err := backup.Open(s.Context(), store, name, nil)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	all := map[string][]byte{}
	for {
		f, err := set.Next(s.Context())
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if all[f.Name()], err = io.ReadAll(f); err != nil {
			return nil, err
		}
	}
}

func TestABackupInS3(t *testing.T) {
	s := newServer(t)
	for _, place := range []string{"s3://bucket", "s3://bucket/a/prefix/"} {
		store := s.open(place)
		s.set(nil)
		s.make(store, "n")
		uploads := 0
		for _, r := range s.asked {
			if strings.HasPrefix(r, "PUT ") && strings.HasSuffix(r, "/n/partition-1") {
				uploads++
			}
		}
		if uploads != 3 {
			t.Errorf("12 MiB went in %d parts, want 3: %v", uploads, s.asked)
		}
		got, err := s.read(store, "n")
		if err != nil || !maps.EqualFunc(got, contents(), bytes.Equal) {
			t.Errorf("%s: %d files came back, %v", place, len(got), err)
		}
		in, err := store.Files(t.Context(), "n")
		if want := []string{"backup.json", "catalog", "partition-1", "partition-2"}; err != nil || !slices.Equal(in, want) {
			t.Errorf("%s: files %v, %v, want %v", place, in, err, want)
		}
		if _, err := backup.Make(t.Context(), store, "n", nil, backup.Manifest{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a second backup of the same name: %v", err)
		}
		s.make(store, "m")
		all, err := backup.List(t.Context(), store, nil)
		if err != nil || len(all) != 2 || all[0].Name != "m" || all[1].Name != "n" || all[1].State != backup.Whole || all[1].Bytes() != 12<<20+15 {
			t.Errorf("%s: list %+v, %v", place, all, err)
		}
	}
}

// An upload that fails leaves no object and no parts, and the backup is discarded.
func TestABackupInS3ThatFails(t *testing.T) {
	s := newServer(t)
	store := s.open("s3://bucket/p")
	m, err := backup.Make(t.Context(), store, "n", nil, backup.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(t.Context(), backup.File{Name: "catalog"}, strings.NewReader("{}")); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the node is lost")
	source := io.MultiReader(bytes.NewReader(make([]byte, 8<<20)), &failing{lost})
	if err := m.Add(t.Context(), backup.File{Name: "partition-1"}, source); !errors.Is(err, lost) {
		t.Errorf("got %v, want %v", err, lost)
	}
	if in, err := store.Files(t.Context(), "n"); err != nil || !slices.Equal(in, []string{"catalog"}) {
		t.Errorf("files %v, %v, want the catalog", in, err)
	}
	if _, err := backup.Open(t.Context(), store, "n", nil); !errors.Is(err, backup.ErrUnfinished) {
		t.Errorf("got %v, want %v", err, backup.ErrUnfinished)
	}
	if err := m.Discard(t.Context()); err != nil {
		t.Error(err)
	}
	if in, err := store.Files(t.Context(), "n"); err != nil || len(in) > 0 {
		t.Errorf("files %v, %v, want none", in, err)
	}
	if _, err := backup.Open(t.Context(), store, "n", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is no backup", err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestS3ThatRefuses(t *testing.T) {
	s := newServer(t)
	s.make(s.open("s3://bucket/p"), "n")
	if _, err := backup.Make(t.Context(), s.open("s3://other"), "n", nil, backup.Manifest{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a bucket that is not there: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "SOMEBODY")
	store := s.open("s3://bucket/p")
	if _, err := s.read(store, "n"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a key that has no right reads: %v", err)
	}
	if _, err := backup.List(t.Context(), store, nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a key that has no right lists: %v", err)
	}
	if _, err := backup.Make(t.Context(), store, "m", nil, backup.Manifest{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a key that has no right writes: %v", err)
	}
}

// A byte that the service changes is damage. An answer that breaks off is not: the object may be well.
func TestS3ThatIsWrong(t *testing.T) {
	s := newServer(t)
	store := s.open("s3://bucket/p")
	s.make(store, "n")
	on := func(how func(http.ResponseWriter, []byte)) {
		s.set(func(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/partition-1") {
				next(w, r)
				return
			}
			whole := httptest.NewRecorder()
			next(whole, r)
			maps.Copy(w.Header(), whole.Header())
			w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()))
			how(w, whole.Body.Bytes())
		})
	}
	on(func(w http.ResponseWriter, b []byte) {
		b[6<<20] ^= 1
		_, _ = w.Write(b)
	})
	_, err := s.read(store, "n")
	var d *backup.Damage
	if !errors.As(err, &d) || d.File != "partition-1" || d.Chunk != 5 {
		t.Errorf("a changed byte: %v, want damage in chunk 5 of partition-1", err)
	}
	on(func(w http.ResponseWriter, b []byte) {
		_, _ = w.Write(b[:6<<20])
		panic(http.ErrAbortHandler)
	})
	if _, err := s.read(store, "n"); err == nil || backup.IsDamage(err) || !strings.Contains(err.Error(), "partition-1 at byte") {
		t.Errorf("an answer that broke off: %v, want an error of reading", err)
	}
}
