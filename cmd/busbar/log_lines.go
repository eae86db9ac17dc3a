package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// logLines writes entries of the log as lines of JSON: time, level, msg, component and node. The values of the entry follow in
// the order of their names. The library has other names for the first four, which no option changes. The library calls Write
// once for each entry, and one call at a time.
type logLines struct {
	to    io.Writer
	node  string // the name of this node for people
	names atomic.Pointer[func(id string) string]
}

// fieldPeer is the name of a value that is the id of a node. The line has the name of that node behind it.
const fieldPeer = "peer"

// nameBy has names of nodes written beside their ids. The function returns "" for a node that it does not know. A nil receiver
// has no lines.
func (l *logLines) nameBy(name func(id string) string) {
	if l != nil {
		l.names.Store(&name)
	}
}

// The names that the library gives to what each entry has.
const (
	libraryTime, libraryLevel, libraryMessage, libraryModule = "@timestamp", "@level", "@message", "@module"
)

// Write implements [io.Writer].
func (l *logLines) Write(entry []byte) (int, error) {
	line := entry
	var fields map[string]json.RawMessage
	if json.Unmarshal(entry, &fields) == nil {
		line = l.line(fields)
	}
	if _, err := l.to.Write(line); err != nil {
		return 0, err
	}
	return len(entry), nil
}

func (l *logLines) line(fields map[string]json.RawMessage) []byte {
	var b bytes.Buffer
	add := func(name string, value []byte) {
		if value == nil {
			return
		}
		b.WriteByte(',')
		b.Write(quoted(name))
		b.WriteByte(':')
		b.Write(value)
	}
	for _, f := range []struct{ name, library string }{{"time", libraryTime}, {"level", libraryLevel}, {"msg", libraryMessage}} {
		add(f.name, fields[f.library])
		delete(fields, f.library)
	}
	var module string
	if json.Unmarshal(fields[libraryModule], &module) == nil {
		add("component", quoted(cmp.Or(strings.TrimPrefix(strings.TrimPrefix(module, logName), "."), "node")))
		delete(fields, libraryModule)
	}
	if l.node != "" {
		add("node", quoted(l.node))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		shown := name
		if slices.Contains([]string{"time", "level", "msg", "component", "node", "peer_name"}, name) {
			shown = "of_" + name // a line has each name once
		}
		add(shown, fields[name])
		if name == fieldPeer {
			add("peer_name", l.nameOf(fields[name]))
		}
	}
	line := b.Bytes()
	line[0] = '{'
	return append(line, '}', '\n')
}

// nameOf is the name of a node as JSON, nil if nobody knows it or it is no other than the id.
func (l *logLines) nameOf(id json.RawMessage) []byte {
	var text string
	ask := l.names.Load()
	if ask == nil || json.Unmarshal(id, &text) != nil {
		return nil
	}
	if name := (*ask)(text); name != "" && name != text {
		return quoted(name)
	}
	return nil
}

// quoted is a text as JSON, which is never refused.
func quoted(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		return []byte(`""`)
	}
	return b
}
