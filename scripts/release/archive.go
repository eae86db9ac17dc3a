package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// item is a file or a directory of an archive. The name of a directory ends with a slash.
type item struct {
	name  string
	mode  int64
	uid   int
	gid   int
	bytes []byte
}

// tarOf returns a tar with one time for all items.
func tarOf(at time.Time, items []item) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Mode: i.mode, Uid: i.uid, Gid: i.gid, Size: int64(len(i.bytes)), ModTime: at, Typeflag: tar.TypeReg}
		if strings.HasSuffix(i.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(i.bytes); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func gzipOf(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func tarGzipOf(at time.Time, items []item) ([]byte, error) {
	b, err := tarOf(at, items)
	if err != nil {
		return nil, err
	}
	return gzipOf(b)
}

func zipOf(at time.Time, items []item) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, i := range items {
		h := &zip.FileHeader{Name: i.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(i.mode))
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(i.bytes); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// archives writes the program of each platform with what people read first.
func (r *release) archives() error {
	for _, p := range r.programs {
		var items []item
		for name, path := range map[string]string{
			filepath.Base(p.path): p.path, "LICENSE": filepath.Join(r.root, "LICENSE"), "README.md": filepath.Join(r.root, "README.md"),
		} {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			i := item{name: name, mode: 0o644, bytes: b}
			if path == p.path {
				i.mode = 0o755
			}
			items = append(items, i)
		}
		sortItems(items)
		pack := tarGzipOf
		if p.system == "windows" {
			pack = zipOf
		}
		b, err := pack(r.at, items)
		if err != nil {
			return err
		}
		if err := r.write(r.archive(p), b); err != nil {
			return err
		}
	}
	return nil
}
