package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

//go:embed files
var texts embed.FS

// text returns a file of the directory files.
func text(name string) ([]byte, error) { return texts.ReadFile("files/" + name) }

// packages writes deb and rpm for each program of Linux.
func (r *release) packages() error {
	dir := filepath.Join(r.scratch, "package")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"busbar.service", "busbar.sysusers", "busbar.yaml", "postinstall.sh", "preremove.sh"} {
		b, err := text(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	for _, p := range r.programs {
		if p.system != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pack(p, dir, format); err != nil {
				return fmt.Errorf("%s for %s: %w", format, p.cpu, err)
			}
		}
	}
	return nil
}

func (r *release) pack(p program, dir, format string) error {
	at := func(mode os.FileMode) *files.ContentFileInfo {
		return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.at}
	}
	info := &nfpm.Info{
		Name: "busbar", Arch: p.cpu, Platform: "linux", Version: r.number, VersionSchema: "semver", Release: "1",
		Section: "net", Priority: "optional", Maintainer: "The authors of Busbar <busbar@users.noreply.github.com>",
		Description: "Replicated message broker for Azure Service Bus clients\nApplications keep their official client libraries and change the connection string.",
		Homepage:    "https://github.com/busbar-mq/busbar", License: "Apache-2.0", MTime: r.at, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: files.Contents{
				{Source: p.path, Destination: "/usr/bin/busbar", FileInfo: at(0o755)},
				{Source: filepath.Join(dir, "busbar.service"), Destination: "/usr/lib/systemd/system/busbar.service", FileInfo: at(0o644)},
				{Source: filepath.Join(dir, "busbar.sysusers"), Destination: "/usr/lib/sysusers.d/busbar.conf", FileInfo: at(0o644)},
				{Source: filepath.Join(dir, "busbar.yaml"), Destination: "/etc/busbar/busbar.yaml", Type: files.TypeConfigNoReplace, FileInfo: at(0o644)},
				{Source: filepath.Join(r.root, "LICENSE"), Destination: "/usr/share/doc/busbar/copyright", FileInfo: at(0o644)},
			},
			Scripts: nfpm.Scripts{PostInstall: filepath.Join(dir, "postinstall.sh"), PreRemove: filepath.Join(dir, "preremove.sh")},
			// The name of the machine that builds is no part of a release.
			RPM: nfpm.RPM{BuildHost: "busbar", Summary: "Replicated message broker for Azure Service Bus clients"},
		},
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.write(r.file(p, "."+format), out.Bytes())
}
