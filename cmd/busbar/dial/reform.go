package dial

import (
	"bytes"
	"encoding/json"
	"io"

	"go.yaml.in/yaml/v3"
)

// reformer turns JSON into another form, value by value as they are written. Each value ends with a line. Other text
// passes as it is.
type reformer struct {
	to   io.Writer
	form string // jsonl or yaml
	kept []byte // the beginning of a value whose end has not come
}

// Write implements io.Writer.
func (r *reformer) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := bytes.IndexByte(rest, '\n') + 1
		if n == 0 {
			r.kept = append(r.kept, rest...)
			return len(b), nil
		}
		r.kept = append(r.kept, rest[:n]...)
		rest = rest[n:]
		text := bytes.TrimSpace(r.kept)
		begins := len(text) > 0 && bytes.IndexByte([]byte(`{["-0123456789tfn`), text[0]) >= 0
		if begins && !json.Valid(text) && (text[0] == '{' || text[0] == '[') {
			continue // it goes on in the next line
		}
		out, err := r.kept, error(nil)
		if begins && json.Valid(text) {
			out, err = r.reform(text)
		}
		if err == nil {
			_, err = r.to.Write(out)
		}
		if r.kept = r.kept[:0]; err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (r *reformer) reform(text []byte) ([]byte, error) {
	var out bytes.Buffer
	if r.form == "yaml" {
		return YAML(text)
	}
	var all []json.RawMessage
	if text[0] != '[' || json.Unmarshal(text, &all) != nil {
		all = []json.RawMessage{text}
	}
	for _, one := range all {
		if err := json.Compact(&out, one); err != nil {
			return nil, err
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// YAML writes a value of JSON as a document of YAML. The order of the fields stays.
func YAML(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	plain(&document)
	out := bytes.NewBufferString("---\n")
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	if err := e.Encode(&document); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

// plain takes the style of JSON from a value: the encoder chooses its own, and quotes where it must.
func plain(n *yaml.Node) {
	empty := (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && len(n.Content) == 0
	if !empty {
		n.Style = 0
	}
	for _, below := range n.Content {
		plain(below)
	}
}
