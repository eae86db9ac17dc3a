package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

var long = flag.Bool("long", false, "release all platforms, and build everything anew for the second time")

// tested are the platforms of the release that the tests look into. The tests start programs of the first one.
func tested() []string {
	if *long {
		return allPlatforms
	}
	return []string{"linux/" + runtime.GOARCH}
}

// made is the one release of the tests.
var made = sync.OnceValues(func() (*release, error) {
	dir, err := os.MkdirTemp("", "busbar-release-test-")
	if err != nil {
		return nil, err
	}
	r := &release{root: "../..", out: filepath.Join(dir, "dist")}
	return r, r.make("v1.2.3", tested())
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if r, err := made(); r != nil && err == nil {
		_ = os.RemoveAll(filepath.Dir(r.out))
	}
	os.Exit(code)
}

func theRelease(t *testing.T) *release {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: the release is looked into on Linux alone")
	}
	r, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// native is the program of this machine.
func (r *release) native(t *testing.T) program {
	t.Helper()
	for _, p := range r.programs {
		if p.system == runtime.GOOS && p.cpu == runtime.GOARCH {
			return p
		}
	}
	t.Fatal("the release has no program of this machine")
	return program{}
}

// The names in a directory are those that a release has, and no others.
func TestAReleaseIsWhole(t *testing.T) {
	r := theRelease(t)
	want := []string{"SHA256SUMS", "busbar-1.2.3.tgz", "busbar.rb", "busbar_1.2.3_image.tar", "compose-emulator.yaml", "compose-one.yaml", "compose-three.yaml", marker}
	for _, p := range r.programs {
		want = append(want, r.archive(p), r.file(p, ".cdx.json"))
		if p.system == "linux" {
			want = append(want, r.file(p, ".deb"), r.file(p, ".rpm"))
		}
	}
	slices.Sort(want)
	entries, err := os.ReadDir(r.out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the release has\n%q\nwant\n%q", got, want)
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = r.out
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK\n")) != len(want)-2 {
		t.Errorf("%v: %s", err, out)
	}
}

// The same commit gives the same bytes, in another place and under other settings of the machine. The long form builds the
// programs anew from a copy of the sources.
func TestTwoReleasesAreTheSame(t *testing.T) {
	r := theRelease(t)
	again := &release{root: "../..", out: filepath.Join(t.TempDir(), "other", "place")}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("HOSTNAME", "elsewhere")
	if *long {
		t.Setenv("SOURCE_DATE_EPOCH", fmt.Sprint(r.at.Unix()))
		t.Setenv("GOCACHE", t.TempDir())
		again.root = filepath.Join(t.TempDir(), "copy")
		clone := exec.Command("sh", "-c", `mkdir "$1" && cd ../.. && git ls-files -z | tar --null -cf - -T - | tar -xf - -C "$1"`, "sh", again.root)
		if out, err := clone.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := again.make("v1.2.3", tested()); err != nil {
		t.Fatal(err)
	}
	one, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(filepath.Join(again.out, "SHA256SUMS"))
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("two releases of one commit differ: %v\n%s\n%s", err, one, two)
	}
}

// A version that is no semantic one becomes one that comes before each release.
func TestVersionsBecomeSemantic(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-14-gabcdef0": "1.2.3-14-gabcdef0",
		"0123456": "0.0.0-dev.g0123456", "unversioned": "0.0.0-dev.gunversioned", "52ee2c7-dirty": "0.0.0-dev.g52ee2c7-dirty", "v1.2": "0.0.0-dev.gv1-2",
	} {
		r := new(release)
		if err := r.name(version); err != nil || r.number != want || r.tag != version || !semantic.MatchString(r.number) {
			t.Errorf("%s: %q, %v; want %q", version, r.number, err, want)
		}
	}
	if err := new(release).name(""); err == nil {
		t.Error("a release without a version is taken")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := new(release).name("v1.2.3"); err == nil {
		t.Error("a time that is none is taken")
	}
}

// A directory that no release wrote is left alone.
func TestForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(foreign, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&release{out: dir}).clear(); err == nil || !strings.Contains(err.Error(), "no release is there") {
		t.Errorf("a directory with other files: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

// unpacked returns the files of a tar by name.
func unpacked(t *testing.T, from io.Reader) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	files, headers := map[string][]byte{}, map[string]*tar.Header{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		files[name], headers[name] = b, h
	}
}

func gunzip(t *testing.T, b []byte) io.Reader {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each archive has the program, which is static and tells the version, the license and the first page.
func TestArchivesHaveTheProgram(t *testing.T) {
	r := theRelease(t)
	for _, p := range r.programs {
		b := r.read(t, r.archive(p))
		if p.system == "windows" {
			z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
			if err != nil || len(z.File) != 3 || z.File[2].Name != "busbar.exe" {
				t.Errorf("%s: %v", r.archive(p), err)
			}
			continue
		}
		files, headers := unpacked(t, gunzip(t, b))
		if len(files) != 3 || len(files["LICENSE"]) == 0 || len(files["README.md"]) == 0 || headers["busbar"].Mode != 0o755 || headers["busbar"].Uid != 0 {
			t.Errorf("%s has %v", r.archive(p), headers)
		}
	}
	dir := t.TempDir()
	files, _ := unpacked(t, gunzip(t, r.read(t, r.archive(r.native(t)))))
	path := filepath.Join(dir, "busbar")
	if err := os.WriteFile(path, files["busbar"], 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "version").CombinedOutput()
	if err != nil || string(out) != "busbar 1.2.3 "+runtime.Version()+" linux/"+runtime.GOARCH+"\n" {
		t.Errorf("version: %q %v", out, err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(info.Settings, debug.BuildSetting{Key: "-pgo", Value: "default.pgo"}) {
		t.Errorf("the program is not compiled by its profile: %v", info.Settings)
	}
}

// The bill of materials names the modules that the program says it is made of.
func TestBillsNameTheModules(t *testing.T) {
	r := theRelease(t)
	for _, p := range r.programs {
		bill := new(cyclonedx.BOM)
		if err := cyclonedx.NewBOMDecoder(bytes.NewReader(r.read(t, r.file(p, ".cdx.json"))), cyclonedx.BOMFileFormatJSON).Decode(bill); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, c := range *bill.Components {
			found[c.Name] = c.Version
		}
		if found["github.com/hashicorp/raft"] == "" || found["std"] != runtime.Version() || found["github.com/goreleaser/nfpm/v2"] != "" || len(found) < 20 {
			t.Errorf("%s/%s is made of %v", p.system, p.cpu, found)
		}
		if c := bill.Metadata.Component; c.Name != "busbar" || c.Version != "1.2.3" {
			t.Errorf("the bill is that of %s %s", c.Name, c.Version)
		}
	}
}

// The formula has the archive and the checksum of each platform that Homebrew knows.
func TestTheFormulaHasTheChecksums(t *testing.T) {
	r := theRelease(t)
	formula := string(r.read(t, "busbar.rb"))
	for _, p := range r.programs {
		if p.system == "windows" {
			continue
		}
		sum, err := sumOf(filepath.Join(r.out, r.archive(p)))
		if want := "releases/download/v1.2.3/" + r.archive(p) + "\"\n      sha256 \"" + sum + "\""; err != nil || !strings.Contains(formula, want) {
			t.Errorf("the formula lacks %q: %v\n%s", want, err, formula)
		}
	}
}

// The chart has the version of the release, runs the image of the release, and has the files behind links.
func TestTheChartIsThatOfTheRelease(t *testing.T) {
	r := theRelease(t)
	files, _ := unpacked(t, gunzip(t, r.read(t, "busbar-1.2.3.tgz")))
	about := string(files["busbar/Chart.yaml"])
	if !strings.Contains(about, "\nversion: 1.2.3\n") || !strings.Contains(about, "\nappVersion: \"1.2.3\"\n") {
		t.Errorf("the chart says of itself\n%s", about)
	}
	for _, name := range []string{"busbar/values.yaml", "busbar/templates/statefulset.yaml", "busbar/files/monitoring/alerts.yaml"} {
		if len(files[name]) == 0 {
			t.Errorf("the chart has no %s", name)
		}
	}
}
