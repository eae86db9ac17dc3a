package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// indexPage is what "/" shows.
const indexPage = "index.html"

// page is one file of the console.
type page struct {
	kind string // its media type
	tag  string // for If-None-Match
	text []byte
}

// kinds are the media types of the files. A file of another kind is a mistake.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

func loadPages(files embed.FS) (map[string]*page, error) {
	pages := map[string]*page{}
	err := fs.WalkDir(files, "pages", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind, known := kinds[path.Ext(name)]
		if !known {
			return fmt.Errorf("console: nobody knows the media type of %s", name)
		}
		text, err := files.ReadFile(name)
		sum := sha256.Sum256(text)
		pages[strings.TrimPrefix(name, "pages/")] = &page{kind, `"` + hex.EncodeToString(sum[:12]) + `"`, text}
		return err
	})
	return pages, err
}

// servePage answers with a file. A browser keeps it, and asks each time whether it is still the same.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, pagesPrefix)
	if r.URL.Path == "/" {
		name = indexPage
	}
	p := c.pages[name]
	if p == nil {
		refuse(w, http.StatusNotFound, "The console has no such file.")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "A file of the console is read by GET.")
		return
	}
	h := w.Header()
	h.Set("Content-Type", p.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", p.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.text))
}
