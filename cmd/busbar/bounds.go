package main

import "strings"

// span is a number that has bounds. A most of 0 is no bound.
type span struct {
	name            string
	is, least, most int
}

func (n *span) validate(name string, bad func(string, ...any)) {
	switch {
	case n.is < n.least && n.most == 0:
		bad("%s is %d, want at least %d", name, n.is, n.least)
	case n.is < n.least || n.most != 0 && n.is > n.most:
		bad("%s is %d, want %d to %d", name, n.is, n.least, n.most)
	}
}

// spans are the numbers with bounds that depend on nothing else.
func (c *Config) spans() []span {
	return []span{
		{"bootstrap-expect", c.BootstrapExpect, 1, 64},
		{"partitions", c.Partitions, 1, 1024},
		{"replication-factor", c.ReplicationFactor, 1, 0},
	}
}

// word is a setting that is one of a few words.
type word struct {
	name, is string
	want     []string
}

func (c *Config) words() []word {
	return []word{
		{"log-store", c.LogStore, []string{"wal", "boltdb"}},
		{"log-format", c.LogFormat, []string{"auto", "text", "json"}},
		{"log-level", c.LogLevel, []string{"trace", "debug", "info", "warn", "error", logAuto}},
	}
}

// oneOf writes a choice as people do.
func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
