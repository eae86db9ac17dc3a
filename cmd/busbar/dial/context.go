package dial

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Context is a broker that a user has given a name.
type Context struct {
	Connection string `yaml:"connection-string"`
	Ops        string `yaml:"ops,omitempty"`
	CAFile     string `yaml:"ca-file,omitempty"`
}

// Contexts are those of a user, and the one that is meant when nothing is said.
type Contexts struct {
	Current string             `yaml:"current,omitempty"`
	All     map[string]Context `yaml:"contexts"`

	path string
}

// contextsVariable names another file than the usual one, contextVariable the context of a shell.
const (
	contextsVariable = "BUSBAR_CONTEXTS"
	contextVariable  = "BUSBAR_CONTEXT"
	stringVariable   = "SERVICEBUS_CONNECTION_STRING"
	opsVariable      = "BUSBAR_OPS"
)

// contextsPath is the file of the user's contexts.
func contextsPath() (string, error) {
	if path := os.Getenv(contextsVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("%w; name a file of contexts by %s", err, contextsVariable)
	}
	return filepath.Join(dir, "busbar", "contexts.yaml"), nil
}

// ReadContexts reads the user's file. It holds keys, so a file that others may read is refused. Without a file there are no
// contexts.
func ReadContexts() (*Contexts, error) {
	path, err := contextsPath()
	if err != nil {
		return nil, err
	}
	c := &Contexts{All: map[string]Context{}, path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if info, err := os.Stat(path); err == nil && readableByOthers(info.Mode()) {
		return nil, exit.Usagef("%s holds keys, and others may read it: chmod 600 %s", path, path)
	}
	if err := yaml.Unmarshal(text, c); err != nil {
		return nil, exit.Usagef("%s: %v", path, err)
	}
	if c.All == nil {
		c.All = map[string]Context{}
	}
	return c, nil
}

// Write replaces the file, which only its owner may read.
func (c *Contexts) Write() (err error) {
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return err
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(c.path), ".contexts-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), c.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}

// Names are the names of the contexts, sorted.
func (c *Contexts) Names() []string { return slices.Sorted(maps.Keys(c.All)) }

// Get returns the context with a name.
func (c *Contexts) Get(name string) (Context, error) {
	found, ok := c.All[name]
	if !ok {
		cure := "busbar context add makes one"
		if len(c.All) > 0 {
			cure = "there are " + strings.Join(c.Names(), ", ")
		}
		return found, exit.With(exit.NotFound, fmt.Errorf("no context is called %s; %s", name, cure))
	}
	return found, nil
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Put makes or replaces a context. Its connection string must be one.
func (c *Contexts) Put(name string, one Context) error {
	if !contextName.MatchString(name) {
		return exit.Usagef("%q is no name of a context: letters, digits, dots and dashes, 63 at most", name)
	}
	if _, err := parseConnectionString(one.Connection); err != nil {
		return exit.With(exit.Usage, err)
	}
	c.All[name] = one
	return nil
}

// Redacted is the connection string without its key.
func (c *Context) Redacted() string {
	var parts []string
	for part := range strings.SplitSeq(c.Connection, ";") {
		name, _, _ := strings.Cut(part, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "":
			continue
		case "sharedaccesskey", "sharedaccesssignature":
			part = name + "=..."
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ";")
}

// Source is what a command speaks to: the flags, else the context that is named, else the environment, else the current
// context. Without any it is empty.
func (f *Flags) Source() (Context, error) {
	name := orElse(f.Context, os.Getenv(contextVariable))
	found := Context{Connection: f.Connection}
	switch {
	case f.Connection != "" && f.Context != "":
		return found, exit.Usagef("--connection-string and --context exclude each other")
	case f.Connection != "":
		found.Ops = os.Getenv(opsVariable)
	case name != "":
		all, err := ReadContexts()
		if err == nil {
			found, err = all.Get(name)
		}
		if err != nil {
			return found, err
		}
		found.Ops = orElse(found.Ops, os.Getenv(opsVariable))
	case os.Getenv(stringVariable) != "":
		found.Connection, found.Ops = os.Getenv(stringVariable), os.Getenv(opsVariable)
	default:
		if path, err := contextsPath(); err == nil && path != "" { // a process without a home has no contexts
			all, err := ReadContexts()
			if err == nil && all.Current != "" {
				found, err = all.Get(all.Current)
			}
			if err != nil {
				return found, err
			}
		}
		found.Ops = orElse(os.Getenv(opsVariable), found.Ops)
	}
	found.CAFile = orElse(f.CAFile, found.CAFile)
	return found, nil
}

func orElse(text, other string) string {
	if text != "" {
		return text
	}
	return other
}
