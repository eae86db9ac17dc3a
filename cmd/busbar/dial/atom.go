package dial

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// AtomPageSize is the number of entries that the service puts on a page of a feed.
const AtomPageSize = 100

// Namespaces of the management API: of its descriptions, of this broker's options in them, and of types.
const (
	connectSpace  = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	optionSpace   = "urn:busbar:entity"
	instanceSpace = "http://www.w3.org/2001/XMLSchema-instance"
)

// Element is one element of an answer of the management API, with what is below it.
type Element struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Text    string     `xml:",chardata"`
	Inner   string     `xml:",innerxml"` // as it came, prefixes included
	Nodes   []Element  `xml:",any"`
}

// Child returns the first child of that name, nil if there is none or e is nil.
func (e *Element) Child(name string) *Element {
	if e == nil {
		return nil
	}
	for i := range e.Nodes {
		if e.Nodes[i].XMLName.Local == name {
			return &e.Nodes[i]
		}
	}
	return nil
}

// Value returns the text of a child, "" if there is none.
func (e *Element) Value(name string) string {
	if c := e.Child(name); c != nil {
		return c.Text
	}
	return ""
}

// Type returns the local name of i:type, "" if there is none or e is nil.
func (e *Element) Type() string {
	if e == nil {
		return ""
	}
	for _, a := range e.Attrs {
		if a.Name.Local == "type" {
			return a.Value[strings.LastIndexByte(a.Value, ':')+1:]
		}
	}
	return ""
}

// ParseElement reads one element whose types have the prefix i.
func ParseElement(inner string) (*Element, error) {
	var e Element
	err := xml.Unmarshal([]byte(`<r xmlns:i="`+instanceSpace+`">`+inner+`</r>`), &e)
	return &e, err
}

// Escaped is a text as XML holds it.
func Escaped(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a buffer takes everything
	return out.String()
}

// Tag writes an element that holds a text.
func Tag(name, text string) string { return "<" + name + ">" + Escaped(text) + "</" + name + ">" }

// OptionsTag writes the element with options that Azure Service Bus does not have, "" for none.
func OptionsTag(inner string) string {
	if inner == "" {
		return ""
	}
	return `<Options xmlns="` + optionSpace + `">` + inner + "</Options>"
}

// Entry is one entry of a feed: its title and the description in it.
type Entry struct {
	Title   string
	Content *Element
}

// entryOf takes an Atom entry apart; Content is nil if the entry has none.
func entryOf(e *Element) Entry {
	out := Entry{Title: e.Value("title")}
	if content := e.Child("content"); content != nil && len(content.Nodes) == 1 {
		out.Content = &content.Nodes[0]
	}
	return out
}

// Get returns the entry at a path. Content is nil if there is nothing: the service answers a read of what nobody
// created by an empty feed (RUL-6).
func (m *Management) Get(ctx context.Context, path string) (Entry, error) {
	answer, err := m.Do(ctx, "show "+path, http.MethodGet, path, "", nil)
	if exit.Code(err) == exit.NotFound {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	return parseEntry(path, answer)
}

func parseEntry(path string, text []byte) (Entry, error) {
	var root Element
	if err := xml.Unmarshal(text, &root); err != nil {
		return Entry{}, fmt.Errorf("%s: the answer is no entry: %w", path, err)
	}
	return entryOf(&root), nil
}

// listed names the entities of the feed at a path in words of the command line, such as "rules of trades".
func listed(path string) string {
	if what, ok := strings.CutPrefix(path, "$Resources/"); ok {
		return strings.ToLower(what)
	}
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return strings.ToLower(path[i+1:]) + " of " + path[:i]
	}
	return path
}

// List reads a feed page after page, until one is not full.
func (m *Management) List(ctx context.Context, path string) ([]Entry, error) {
	var all []Entry
	what := "list " + listed(path)
	for {
		before := len(all)
		query := fmt.Sprintf("&$skip=%d&$top=%d", before, AtomPageSize)
		answer, err := m.Do(ctx, what, http.MethodGet, path, query, nil)
		if err != nil {
			return nil, err
		}
		var feed Element
		if err := xml.Unmarshal(answer, &feed); err != nil {
			return nil, fmt.Errorf("%s: the answer is no feed: %w", what, err)
		}
		for i := range feed.Nodes {
			if feed.Nodes[i].XMLName.Local == "entry" {
				all = append(all, entryOf(&feed.Nodes[i]))
			}
		}
		if len(all)-before < AtomPageSize {
			return all, nil
		}
	}
}

// Create puts a new entity, subscription or rule at a path. element is the name of its description, inner what the
// description holds. The error has the code [exit.Conflict] if something is there already.
func (m *Management) Create(ctx context.Context, path, element, inner string) (Entry, error) {
	return m.put(ctx, "create "+path, path, element, inner, false)
}

// Update replaces the description of what is at a path. The error has the code [exit.NotFound] if nothing is there.
func (m *Management) Update(ctx context.Context, path, element, inner string) (Entry, error) {
	return m.put(ctx, "update "+path, path, element, inner, true)
}

// Check asks the service what it would say to a creation, names that are taken and entities that are missing apart.
// The error has the code [exit.Usage] if the description is wrong.
func (m *Management) Check(ctx context.Context, path, element, inner string) error {
	_, err := m.request(ctx, "check "+path, http.MethodPost, path, "&validate=true", entryBody(element, inner), false)
	return err
}

// entryBody writes an Atom entry with one description.
func entryBody(element, inner string) []byte { return []byte(Document(element, inner)) }

// Document writes an Atom entry with one description. Types in it have the prefix i.
func Document(element, inner string) string {
	return `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><` + element + ` xmlns="` +
		connectSpace + `" xmlns:i="` + instanceSpace + `">` + inner + `</` + element + `></content></entry>`
}

func (m *Management) put(ctx context.Context, what, path, element, inner string, update bool) (Entry, error) {
	answer, err := m.request(ctx, what, http.MethodPut, path, "", entryBody(element, inner), update)
	if err != nil {
		return Entry{}, err
	}
	return parseEntry(path, answer)
}

// Delete deletes what is at a path, messages included.
func (m *Management) Delete(ctx context.Context, path string) error {
	_, err := m.Do(ctx, "delete "+path, http.MethodDelete, path, "", nil)
	return err
}

// escapedPath is the path of a URL.
func escapedPath(path string) string { return (&url.URL{Path: "/" + path}).EscapedPath() }
