package languages

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Version is one line of versions.txt: a version of a client library that runs the scenarios.
type Version struct {
	Runner  string // the folder with the run.sh
	Version string
	Always  bool // make conformance runs it, not only make conformance-full
	Wires   []Wire
}

// Wire is one way to connect.
type Wire struct {
	Name string // plain, tls or websocket
	Port string // the only port of the host that the library connects to; empty: any
}

func (v Version) String() string { return v.Runner + "-" + v.Version }

// wire finds the wire of that name.
func (v Version) wire(name string) (Wire, bool) {
	i := slices.IndexFunc(v.Wires, func(w Wire) bool { return w.Name == name })
	if i < 0 {
		return Wire{}, false
	}
	return v.Wires[i], true
}

// ReadVersions reads versions.txt, whose comment has its form.
func ReadVersions(file string) ([]Version, error) {
	var all []Version
	err := eachLine(file, 4, func(f []string) error {
		v := Version{Runner: f[0], Version: f[1], Always: f[2] == "always"}
		if !v.Always && f[2] != "full" {
			return fmt.Errorf("%q is neither always nor full", f[2])
		}
		for _, text := range strings.Fields(f[3]) {
			name, port, _ := strings.Cut(text, ":")
			if !slices.Contains([]string{"plain", "tls", "websocket"}, name) {
				return fmt.Errorf("%q is neither plain, tls nor websocket", name)
			}
			v.Wires = append(v.Wires, Wire{name, port})
		}
		if slices.ContainsFunc(all, func(o Version) bool { return o.String() == v.String() }) {
			return fmt.Errorf("%s twice", v)
		}
		all = append(all, v)
		return nil
	})
	return all, err
}

// Installed installs the newest version of a runner's library as run.sh does, and returns the directory that has it. base is
// the directory of the runners.
func Installed(ctx context.Context, base, runner string) (string, error) {
	all, err := ReadVersions(filepath.Join(base, "versions.txt"))
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(v Version) bool { return v.Runner == runner && v.Always })
	if i < 0 {
		return "", fmt.Errorf("versions.txt has no runner %s", runner)
	}
	install := exec.CommandContext(ctx, filepath.Join(base, runner, "run.sh"), "--where", all[i].Version)
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		return "", fmt.Errorf("install the library of %s: %w", runner, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Absences tells what each version of a library cannot express: the reason by id of the scenario, by
// Version.String.
type Absences map[string]map[string]string

// ReadAbsences reads absent.txt, whose comment has its form.
func ReadAbsences(file string) (Absences, error) {
	all := Absences{}
	err := eachLine(file, 4, func(f []string) error {
		version := f[0] + "-" + f[1]
		if all[version] == nil {
			all[version] = map[string]string{}
		}
		for _, id := range strings.Fields(f[2]) {
			if _, twice := all[version][id]; twice {
				return fmt.Errorf("%s: %s twice", version, id)
			}
			all[version][id] = f[3]
		}
		return nil
	})
	return all, err
}

// eachLine gives take the fields of each line, which are separated by bars. Empty lines and those
// that begin with # are comments. An error names the file and the line.
func eachLine(file string, fields int, take func([]string) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		got := strings.Split(line, " | ")
		err := fmt.Errorf("%d fields, want %d", len(got), fields)
		if len(got) == fields && !slices.Contains(got, "") {
			err = take(got)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	return lines.Err()
}
