package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

func main() {
	var r release
	platforms := flag.String("platforms", strings.Join(allPlatforms, ","), "platforms to build for, such as linux/amd64")
	version := flag.String("version", "", "version to write into programs and names: a tag such as v1.2.3")
	flag.StringVar(&r.root, "root", ".", "directory of the repository")
	flag.StringVar(&r.out, "out", "dist", "directory to write into; what is there is removed")
	flag.Parse()
	if err := r.make(*version, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// allPlatforms are those that a release has programs for.
var allPlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// release is what all steps know.
type release struct {
	root, out string
	scratch   string // programs and what else is no part of the release by itself
	tag       string // as people gave it
	number    string // the tag as a semantic version without its v
	at        time.Time
	programs  []program
}

// program is the program of one platform.
type program struct{ system, cpu, path string }

func (r *release) make(version string, platforms []string) (err error) {
	if err := r.name(version); err != nil {
		return err
	}
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if err := r.clear(); err != nil {
		return err
	}
	if r.scratch, err = os.MkdirTemp("", "busbar-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.scratch)
	for _, p := range platforms {
		if err := r.build(p); err != nil {
			return err
		}
	}
	for _, step := range []func() error{r.archives, r.packages, r.image, r.bills, r.compose, r.chart, r.formula, r.sums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// clear makes the directory of the release, without what an earlier one left there. A directory that no release wrote stays.
func (r *release) clear() error {
	entries, err := os.ReadDir(r.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(r.out, marker)); err != nil {
			return fmt.Errorf("%s is not empty, and no release is there: remove it, or choose another directory", r.out)
		}
		if err := os.RemoveAll(r.out); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, marker), nil, 0o644)
}

// marker is a file that says who wrote the directory. It is no part of the release.
const marker = ".release"

var (
	semantic = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)
	odd      = regexp.MustCompile(`[^0-9A-Za-z-]+`)
)

// name finds the version and the time of the release. A version that is no semantic one, as of a commit without a tag, comes
// before each release.
func (r *release) name(version string) error {
	if version == "" {
		return errors.New("-version is not given")
	}
	r.tag, r.number = version, strings.TrimPrefix(version, "v")
	if !semantic.MatchString(r.number) {
		r.number = "0.0.0-dev.g" + odd.ReplaceAllString(version, "-")
	}
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		cmd := exec.Command("git", "log", "-1", "--format=%ct")
		cmd.Dir = r.root
		b, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("the time of the commit is not known: set SOURCE_DATE_EPOCH: %w", err)
		}
		text = strings.TrimSpace(string(b))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 315532800 { // zip knows no time before 1980
		return fmt.Errorf("SOURCE_DATE_EPOCH is %q, want seconds since 1970 that are after 1980", text)
	}
	r.at = time.Unix(seconds, 0).UTC()
	return nil
}

// write writes a file of the release.
func (r *release) write(name string, b []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), b, 0o644)
}

// sums writes the checksums of all files, in the form of sha256sum.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		if e.Name() == marker {
			continue
		}
		sum, err := sumOf(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+e.Name()+"\n")
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i][64:] < lines[j][64:] })
	return r.write("SHA256SUMS", []byte(strings.Join(lines, "")))
}

func sumOf(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
