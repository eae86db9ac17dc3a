package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Program is a binary of an earlier state of the repository.
type Program struct{ Name, Path string }

// PreviousProgram builds the commit of main before this one from the history of git, below dir. Without a history, as in
// a shallow clone, it is an error, which tests tell as skipped.
func PreviousProgram(dir string, say func(format string, args ...any)) (Program, error) {
	root, err := repository()
	if err != nil {
		return Program{}, err
	}
	commit, err := previousCommit(root)
	if err != nil {
		return Program{}, fmt.Errorf("no earlier commit is at hand, as in a shallow clone: %w", err)
	}
	return earlier("the commit before", root, commit, dir, say)
}

// TaggedProgram builds the last tag before this commit, below dir. It is an error if nothing has been tagged.
func TaggedProgram(dir string, say func(format string, args ...any)) (Program, error) {
	root, err := repository()
	if err != nil {
		return Program{}, err
	}
	tag, err := git(root, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD~1")
	if err != nil {
		return Program{}, fmt.Errorf("no release has been tagged: %w", err)
	}
	return earlier("the release "+tag, root, tag, dir, say)
}

// repository is the working tree of git that has the working directory.
func repository() (string, error) {
	where, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return git(where, "rev-parse", "--show-toplevel")
}

// previousCommit returns the commit of main that a change starts from. On a branch that is where it left main, and on main
// the parent of the last commit.
func previousCommit(root string) (string, error) {
	head, err := git(root, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	for _, main := range []string{"main", "origin/main"} {
		if base, err := git(root, "merge-base", "HEAD", main); err == nil && base != head {
			return base, nil
		}
	}
	return git(root, "rev-parse", "--verify", "HEAD~1^{commit}")
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(complaint.Bytes()))
	}
	return string(bytes.TrimSpace(out)), nil
}

// earlier builds the program of a commit in a directory of its own below dir.
func earlier(name, root, commit, dir string, say func(format string, args ...any)) (Program, error) {
	began, dir := time.Now(), filepath.Join(dir, commit[:min(12, len(commit))])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Program{}, err
	}
	archive := exec.Command("git", "-C", root, "archive", commit)
	unpack := exec.Command("tar", "-x", "-C", dir)
	var err error
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		return Program{}, err
	}
	if err := unpack.Start(); err != nil {
		return Program{}, err
	}
	if err := errors.Join(archive.Run(), unpack.Wait()); err != nil {
		return Program{}, fmt.Errorf("git archive %s: %w", commit, err)
	}
	bin := filepath.Join(dir, "busbar")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+commit, "-o", bin, "./cmd/busbar")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-pgo=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Program{}, fmt.Errorf("build %s: %w\n%s", commit, err, out)
	}
	say("built %s in %s", commit, time.Since(began).Round(time.Millisecond))
	return Program{name, bin}, nil
}
