package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

func sortItems(items []item) {
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.name, b.name) })
}

// compose writes the compose files with the tag of the image.
func (r *release) compose() error {
	for _, name := range []string{"compose-one.yaml", "compose-three.yaml", "compose-emulator.yaml"} {
		b, err := text(name)
		if err != nil {
			return err
		}
		if err := r.write(name, bytes.ReplaceAll(b, []byte("busbar:VERSION"), []byte("busbar:"+imageTag(r.number)))); err != nil {
			return err
		}
	}
	return nil
}

// chart writes the Helm chart, whose version and image are those of the release.
func (r *release) chart() error {
	var items []item
	if err := r.below(filepath.Join(r.root, "scripts", "kubernetes", "chart"), "busbar", &items); err != nil {
		return err
	}
	sortItems(items)
	for i := range items {
		if items[i].name != "busbar/Chart.yaml" {
			continue
		}
		for key, value := range map[string]string{"version": r.number, "appVersion": `"` + imageTag(r.number) + `"`} {
			line := regexp.MustCompile(`(?m)^` + key + `: .*$`)
			if !line.Match(items[i].bytes) {
				return fmt.Errorf("no line %s in Chart.yaml", key)
			}
			items[i].bytes = line.ReplaceAll(items[i].bytes, []byte(key+": "+value))
		}
	}
	b, err := tarGzipOf(r.at, items)
	if err != nil {
		return err
	}
	return r.write("busbar-"+r.number+".tgz", b)
}

// below collects the files of a directory, also those behind links, as Helm does.
func (r *release) below(dir, name string, into *[]item) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(dir, e.Name()), path.Join(name, e.Name())
		st, err := os.Stat(from)
		if err != nil {
			return err
		}
		if st.IsDir() {
			if err := r.below(from, to, into); err != nil {
				return err
			}
			continue
		}
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		*into = append(*into, item{name: to, mode: 0o644, bytes: b})
	}
	return nil
}

// formula writes what Homebrew installs from, if there are programs for it.
func (r *release) formula() error {
	type archive struct{ CPU, File, Sum string }
	type system struct {
		Name     string
		Archives []archive
	}
	var systems []system
	for goos, name := range map[string]string{"darwin": "macos", "linux": "linux"} {
		s := system{Name: name}
		for _, p := range r.programs {
			if p.system != goos {
				continue
			}
			sum, err := sumOf(filepath.Join(r.out, r.archive(p)))
			if err != nil {
				return err
			}
			s.Archives = append(s.Archives, archive{map[string]string{"amd64": "intel", "arm64": "arm"}[p.cpu], r.archive(p), sum})
		}
		if len(s.Archives) > 0 {
			systems = append(systems, s)
		}
	}
	if len(systems) == 0 {
		return nil
	}
	slices.SortFunc(systems, func(a, b system) int { return strings.Compare(a.Name, b.Name) })
	b, err := text("busbar.rb.tmpl")
	if err != nil {
		return err
	}
	form, err := template.New("formula").Parse(string(b))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := form.Execute(&out, map[string]any{"Version": r.number, "Tag": r.tag, "Systems": systems}); err != nil {
		return err
	}
	return r.write("busbar.rb", out.Bytes())
}
