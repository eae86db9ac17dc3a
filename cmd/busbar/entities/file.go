package entities

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a file of entities: ten thousand of them take a few MiB.
const maxFileBytes = 64 << 20

// place is where something stands in a file of entities.
type place struct {
	line    int
	pointer string // JSON pointer, RFC 6901
}

func (p place) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d, %s: %w", p.line, p.pointer, fmt.Errorf(format, args...))
}

// Spec is one entity that a file asks for.
type Spec struct {
	place
	kind  string // Queue, Topic or Subscription
	path  string // of a subscription: topic/Subscriptions/name
	props []propertySpec
	rules []ruleSpec
}

// propertySpec is a property and where it stands.
type propertySpec struct {
	place
	Property
}

// ruleSpec is a rule of a subscription and where it stands.
type ruleSpec struct {
	place
	Rule
}

// Read reads a file of entities: the official emulator's Config.json, or what is under one of
// its namespaces, as JSON with comments or as YAML. All problems are reported, with line and pointer.
// notes say what was read and means nothing here.
func Read(file string) (all []Spec, notes []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, fmt.Errorf("entities: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("more than %d bytes", maxFileBytes)
	}
	if err == nil {
		all, notes, err = parse(text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("entities %s: %w", file, err)
	}
	return all, append(notes, CircleWarnings(all)...), nil
}

func parse(text []byte) ([]Spec, []string, error) {
	root, err := parseTree(text)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{}
	r.root(root)
	return r.all, r.notes, errors.Join(r.errs...)
}

// parseTree reads JSON or YAML into nodes with lines. JSON begins with a brace, maybe behind comments.
func parseTree(text []byte) (*yaml.Node, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	plain := stripComments(text)
	if bytes.HasPrefix(bytes.TrimSpace(plain), []byte("{")) {
		return parseJSON(plain)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, errors.New("the file is empty")
	}
	return document.Content[0], nil
}

// stripComments blanks // and /* */ outside of strings; lines stay where they are.
func stripComments(text []byte) []byte {
	out := bytes.Clone(text)
	inString := false
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			end, line := len(out), out[i+1] == '/'
			if line {
				if n := bytes.IndexByte(out[i:], '\n'); n >= 0 {
					end = i + n
				}
			} else if n := bytes.Index(out[i+2:], []byte("*/")); n >= 0 {
				end = i + 2 + n + 2
			}
			for ; i < end; i++ {
				if out[i] != '\n' {
					out[i] = ' '
				}
			}
			i--
		}
	}
	return out
}

// parseJSON reads JSON into the nodes that YAML has, for its lines.
func parseJSON(text []byte) (*yaml.Node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	line := func() int { return 1 + bytes.Count(text[:d.InputOffset()], []byte("\n")) }
	n, err := jsonNode(d, line, 0)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the document")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", line(), err)
	}
	return n, nil
}

func jsonNode(d *json.Decoder, line func() int, depth int) (*yaml.Node, error) {
	const maxDepth = 32
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errors.New("the document is too deep")
	}
	n := &yaml.Node{Line: line(), Kind: yaml.ScalarNode}
	switch v := token.(type) {
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for d.More() {
			child, err := jsonNode(d, line, depth+1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err = d.Token()
	case string:
		n.Tag, n.Value = "!!str", v
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			n.Tag = "!!int"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	case nil:
		n.Tag = "!!null"
	}
	return n, err
}

// reader walks the tree and collects entities and problems.
type reader struct {
	all   []Spec
	notes []string
	errs  []error
}

func (r *reader) fail(at place, format string, args ...any) {
	r.errs = append(r.errs, at.errorf(format, args...))
}

// member is one member of a mapping.
type member struct {
	place
	key  string
	node *yaml.Node
}

// members returns what a mapping holds. Keys have no case.
func (r *reader) members(n *yaml.Node, at place) []member {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.fail(at, "want an object")
		return nil
	}
	var all []member
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		m := member{place{key.Line, at.pointer + "/" + escapePointer(key.Value)}, strings.ToLower(key.Value),
			n.Content[i+1]}
		if seen[m.key] {
			r.fail(m.place, "is given twice")
		}
		seen[m.key] = true
		all = append(all, m)
	}
	return all
}

func escapePointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// items calls f with every item of a list.
func (r *reader) items(m member, f func(n *yaml.Node, at place)) {
	n := m.node
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.fail(m.place, "want a list")
		return
	}
	for i, item := range n.Content {
		f(item, place{item.Line, m.pointer + "/" + strconv.Itoa(i)})
	}
}

// scalar returns a text, number or truth value; false if m is none.
func (r *reader) scalar(m member) (string, bool) {
	n := m.node
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode {
		r.fail(m.place, "want a text, a number, true or false")
		return "", false
	}
	if n.ShortTag() == "!!null" {
		return "", true
	}
	return n.Value, true
}

func (r *reader) root(n *yaml.Node) {
	top := place{n.Line, ""}
	all := slices.DeleteFunc(r.members(n, top), func(m member) bool { return m.key == schemaKey })
	if len(all) == 1 && all[0].key == "userconfig" {
		r.userConfig(all[0])
		return
	}
	r.namespace(all)
}

func (r *reader) userConfig(m member) {
	for _, m := range r.members(m.node, m.place) {
		switch m.key {
		case "namespaces":
			count := 0
			r.items(m, func(n *yaml.Node, at place) {
				if count++; count > 1 {
					r.fail(at, "one namespace is all there is; give the others a broker of their own")
					return
				}
				r.namespace(r.members(n, at))
			})
		case "logging":
			r.notes = append(r.notes, fmt.Sprintf("line %d, %s: logs are set by --log-level and --log-format",
				m.line, m.pointer))
		default:
			r.fail(m.place, "is unknown; want Namespaces or Logging")
		}
	}
}

func (r *reader) namespace(all []member) {
	for _, m := range all {
		switch m.key {
		case "name":
			if name, ok := r.scalar(m); ok {
				r.notes = append(r.notes, fmt.Sprintf("line %d, %s: the namespace is the broker itself, "+
					"whatever it is called (%q)", m.line, m.pointer, name))
			}
		case "queues":
			r.items(m, func(n *yaml.Node, at place) { r.entity(Queue, "", n, at) })
		case "topics":
			r.items(m, func(n *yaml.Node, at place) { r.entity(Topic, "", n, at) })
		default:
			r.fail(m.place, "is unknown; want Queues or Topics")
		}
	}
}

// entity reads a queue, topic or subscription. Entities below a topic come after it.
func (r *reader) entity(kind, topic string, n *yaml.Node, at place) {
	e := Spec{place: at, kind: kind}
	var below []member
	for _, m := range r.members(n, at) {
		switch {
		case m.key == "name":
			e.path, _ = r.scalar(m)
		case m.key == "properties":
			r.properties(&e, m)
		case m.key == "subscriptions" && kind == Topic:
			below = append(below, m)
		case m.key == "rules" && kind == Subscription:
			r.items(m, func(n *yaml.Node, at place) { r.rule(&e, n, at) })
		default:
			r.fail(m.place, "is unknown in a %s", strings.ToLower(kind))
		}
	}
	if e.path == "" {
		r.fail(at, "the %s has no name", strings.ToLower(kind))
		return
	}
	if topic != "" {
		e.path = SubscriptionPath(topic, e.path)
	}
	for _, other := range r.all {
		if strings.EqualFold(other.path, e.path) {
			r.fail(at, "%s is named on line %d as well", e.path, other.line)
		}
	}
	r.all = append(r.all, e)
	for _, m := range below {
		r.items(m, func(n *yaml.Node, at place) { r.entity(Subscription, e.path, n, at) })
	}
}

func (r *reader) properties(e *Spec, m member) {
	for _, m := range r.members(m.node, m.place) {
		name := propertyName(e.kind, m.key)
		if name == "" {
			r.fail(m.place, "is no property of a %s", strings.ToLower(e.kind))
			continue
		}
		if value, ok := r.scalar(m); ok && value != "" {
			e.props = append(e.props, propertySpec{m.place, Property{name, value}})
		}
	}
}
