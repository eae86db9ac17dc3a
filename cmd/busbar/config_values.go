package main

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// secret does not print itself.
type secret string

func (secret) String() string { return "[redacted]" }

// GoString keeps %#v from printing it.
func (secret) GoString() string { return "[redacted]" }

// list is a YAML sequence or one comma-separated text.
type list []string

// UnmarshalYAML accepts both forms.
func (l *list) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*l = splitList(n.Value)
		return nil
	}
	var s []string
	if err := n.Decode(&s); err != nil {
		return err
	}
	*l = s
	return nil
}

func splitList(text string) list {
	var out list
	for _, s := range strings.Split(text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// setting is one thing that a flag or an environment variable can set.
type setting struct {
	name, usage string
	boolean     bool
	set         func(c *Config, values []string) error
}

func text(name, usage string, at func(*Config) *string) setting {
	return setting{name: name, usage: usage, set: func(c *Config, v []string) error {
		*at(c) = v[len(v)-1]
		return nil
	}}
}

func texts(name, usage string, at func(*Config) *list) setting {
	return setting{name: name, usage: usage, set: func(c *Config, v []string) error {
		*at(c) = splitList(strings.Join(v, ","))
		return nil
	}}
}

func number(name, usage string, at func(*Config) *int) setting {
	return setting{name: name, usage: usage, set: func(c *Config, v []string) error {
		n, err := strconv.Atoi(v[len(v)-1])
		if err != nil {
			return fmt.Errorf("%q is not a number", v[len(v)-1])
		}
		*at(c) = n
		return nil
	}}
}

func truth(name, usage string, at func(*Config) *bool) setting {
	return setting{name: name, usage: usage, boolean: true, set: func(c *Config, v []string) error {
		b, err := strconv.ParseBool(v[len(v)-1])
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v[len(v)-1])
		}
		*at(c) = b
		return nil
	}}
}
