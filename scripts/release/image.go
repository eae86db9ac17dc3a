package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageUser is the number of the user in containers. A name would need a database of users.
const imageUser = 65532

// image writes one archive of an OCI layout. The layout has the server and the emulator as two tags, each for all processors.
func (r *release) image() error {
	var server, emulator v1.ImageIndex = r.index(), r.index()
	some := false
	for _, p := range r.programs {
		if p.system != "linux" {
			continue
		}
		some = true
		layer, err := r.layer(p)
		if err != nil {
			return err
		}
		for _, kind := range []struct {
			into   *v1.ImageIndex
			config v1.Config
		}{{&server, r.serverConfig()}, {&emulator, r.emulatorConfig()}} {
			img, err := r.imageOf(p, layer, kind.config)
			if err != nil {
				return err
			}
			*kind.into = mutate.AppendManifests(*kind.into, mutate.IndexAddendum{
				Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.system, Architecture: p.cpu}},
			})
		}
	}
	if !some {
		return nil
	}
	tag := imageTag(r.number)
	var all v1.ImageIndex = r.index()
	for _, one := range []struct {
		index v1.ImageIndex
		tag   string
	}{{server, tag}, {emulator, tag + "-emulator"}} {
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: one.index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": one.tag,
			"io.containerd.image.name":          "busbar:" + one.tag, // what the image is called after it is loaded
		}}})
	}
	dir := filepath.Join(r.scratch, "layout")
	if _, err := layout.Write(dir, all); err != nil {
		return err
	}
	var items []item
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		items = append(items, item{name: filepath.ToSlash(rel), mode: 0o644, bytes: b})
		return err
	})
	if err != nil {
		return err
	}
	sortItems(items)
	b, err := tarOf(r.at, items)
	if err != nil {
		return err
	}
	return r.write("busbar_"+r.number+"_image.tar", b)
}

func (r *release) index() v1.ImageIndex {
	return mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
}

var noTag = regexp.MustCompile(`[^0-9A-Za-z_.-]`)

// imageTag is the version as a tag of images.
func imageTag(version string) string { return noTag.ReplaceAllString(version, "-") }

// layer holds the program, and the two directories that a node writes to.
func (r *release) layer(p program) (v1.Layer, error) {
	b, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	b, err = tarOf(r.at, []item{
		{name: "busbar", mode: 0o755, bytes: b},
		{name: "data/", mode: 0o770, uid: imageUser}, // group 0, for platforms that choose the user
		{name: "tmp/", mode: 0o1777},
	})
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
		tarball.WithMediaType(types.OCILayer))
}

func (r *release) imageOf(p program, layer v1.Layer, config v1.Config) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.at}, CreatedBy: "busbar " + r.tag},
	})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Config = p.system, p.cpu, v1.Time{Time: r.at}, config
	return mutate.ConfigFile(img, file)
}

func (r *release) serverConfig() v1.Config {
	return v1.Config{
		User: "65532:65532", WorkingDir: "/data", Entrypoint: []string{"/busbar"},
		// An argument, because a variable would win over the file of a node that keeps its data elsewhere.
		Cmd:          []string{"serve", "--data-dir", "/data"},
		ExposedPorts: map[string]struct{}{"5671/tcp": {}, "5672/tcp": {}, "5300/tcp": {}, "5301/tcp": {}, "5302/tcp": {}, "5302/udp": {}},
		Volumes:      map[string]struct{}{"/data": {}},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/busbar", "healthcheck"},
			Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: time.Minute},
		Labels: r.labels("Busbar", "Replicated message broker for Azure Service Bus clients"),
	}
}

func (r *release) emulatorConfig() v1.Config {
	return v1.Config{
		User: "65532:65532", WorkingDir: "/tmp", Entrypoint: []string{"/busbar"}, Cmd: []string{"emulator"},
		ExposedPorts: map[string]struct{}{"5672/tcp": {}, "5300/tcp": {}},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/busbar", "healthcheck", "--ready"},
			Interval: 2 * time.Second, Timeout: 5 * time.Second, StartPeriod: time.Minute},
		Labels: r.labels("Busbar emulator", "One node of Busbar in the place of the official emulator of Azure Service Bus"),
	}
}

func (r *release) labels(title, description string) map[string]string {
	const key = "org.opencontainers.image."
	return map[string]string{
		key + "title": title, key + "description": description, key + "version": r.number, key + "licenses": "Apache-2.0",
		key + "source": "https://github.com/busbar-mq/busbar", key + "url": "https://github.com/busbar-mq/busbar",
		key + "created": r.at.Format(time.RFC3339), key + "ref.name": strings.TrimPrefix(r.tag, "v"),
	}
}
