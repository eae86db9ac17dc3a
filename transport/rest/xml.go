package rest

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// XML namespaces of requests and answers.
const (
	atomSpace     = "http://www.w3.org/2005/Atom"
	connectSpace  = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	countsSpace   = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
	instanceSpace = "http://www.w3.org/2001/XMLSchema-instance"
)

// Bounds of a request's document, far beyond a description with twelve rules.
const (
	maxDepth    = 16
	maxElements = 1000
)

// element is one element of a request's document. Names are resolved: prefixes do not matter.
type element struct {
	name     xml.Name
	text     string // all of its character data
	null     bool   // i:nil="true"
	kind     string // i:type without its prefix
	children []*element
}

// child returns the only child of that name, nil if there is none.
func (e *element) child(space, local string) *element {
	for _, c := range e.children {
		if c.name.Space == space && c.name.Local == local {
			return c
		}
	}
	return nil
}

// local returns the first child of that local name in whatever namespace, nil if there is none.
func (e *element) local(name string) *element {
	for _, c := range e.children {
		if c.name.Local == name {
			return c
		}
	}
	return nil
}

// parseXML reads one document of bounded size. There is no document type, so no entity can be
// declared and none expands.
func parseXML(r io.Reader) (*element, error) {
	buffered := bufio.NewReader(r)
	if mark, err := buffered.Peek(3); err == nil && bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = buffered.Discard(3)
	}
	d := xml.NewDecoder(buffered)
	var root *element
	var open []*element
	var texts [][]byte // of the open elements; comments split text into many pieces
	for count := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && root != nil && len(open) == 0 {
			return root, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document is not well-formed: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if count++; count > maxElements || len(open) == maxDepth {
				return nil, errors.New("document has too many elements, or too deep ones")
			}
			e := &element{name: token.Name, null: isNil(token.Attr), kind: typeName(token.Attr)}
			switch {
			case len(open) > 0:
				parent := open[len(open)-1]
				parent.children = append(parent.children, e)
			case root != nil:
				return nil, errors.New("document has two roots")
			default:
				root = e
			}
			open, texts = append(open, e), append(texts, nil)
		case xml.EndElement:
			last := len(open) - 1
			open[last].text = string(texts[last])
			open, texts = open[:last], texts[:last]
		case xml.CharData:
			if len(open) > 0 {
				texts[len(texts)-1] = append(texts[len(texts)-1], token...)
			} else if strings.TrimSpace(string(token)) != "" {
				return nil, errors.New("document has text outside its root")
			}
		case xml.Directive:
			return nil, errors.New("document has a document type")
		}
	}
}

// typeName returns the local name of i:type. Its prefix says nothing that the name does not.
func typeName(attributes []xml.Attr) string {
	for _, a := range attributes {
		if a.Name.Space == instanceSpace && a.Name.Local == "type" {
			value := strings.TrimSpace(a.Value)
			return value[strings.LastIndexByte(value, ':')+1:]
		}
	}
	return ""
}

func isNil(attributes []xml.Attr) bool {
	for _, a := range attributes {
		if a.Name.Space == instanceSpace && a.Name.Local == "nil" {
			return strings.TrimSpace(a.Value) == "true" || strings.TrimSpace(a.Value) == "1"
		}
	}
	return false
}

// escape writes text as character data or attribute value, with the named entities only: clients exist that do not
// decode numbered ones. The carriage return has no name, and the service writes it so. A character that XML cannot
// hold becomes U+FFFD.
func escape(out *bytes.Buffer, text string) {
	for _, r := range text {
		switch {
		case r == '&':
			out.WriteString("&amp;")
		case r == '<':
			out.WriteString("&lt;")
		case r == '>':
			out.WriteString("&gt;")
		case r == '"':
			out.WriteString("&quot;")
		case r == '\r':
			out.WriteString("&#xD;")
		case r < ' ' && r != '\n' && r != '\t', r == 0xfffe, r == 0xffff:
			out.WriteRune(utf8.RuneError)
		default:
			out.WriteRune(r) // invalid UTF-8 comes as utf8.RuneError
		}
	}
}
