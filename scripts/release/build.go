package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// build compiles the program for a platform. The flags are those of the Makefile.
func (r *release) build(platform string) error {
	if !slices.Contains(allPlatforms, platform) {
		return fmt.Errorf("platform %q is none of %s", platform, strings.Join(allPlatforms, ", "))
	}
	system, cpu, _ := strings.Cut(platform, "/")
	p := program{system, cpu, filepath.Join(r.scratch, system+"_"+cpu, "busbar")}
	if system == "windows" {
		p.path += ".exe"
	}
	cmd := exec.Command("go", "build", "-pgo=auto", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.tag, "-o", p.path, "./cmd/busbar")
	cmd.Dir = r.root
	// Settings of the machine that builds must not change the program.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+cpu, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build for %s: %w\n%s", platform, err, out)
	}
	r.programs = append(r.programs, p)
	return nil
}

// file is the name of a file of the release for one platform.
func (r *release) file(p program, end string) string {
	return fmt.Sprintf("busbar_%s_%s_%s%s", r.number, p.system, p.cpu, end)
}

// archive is the name of the archive of a platform.
func (r *release) archive(p program) string {
	if p.system == "windows" {
		return r.file(p, ".zip")
	}
	return r.file(p, ".tar.gz")
}
