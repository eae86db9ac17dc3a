package rest

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm"
)

// Bounds of properties, those of the original (S-157, S-257).
const (
	minLock              = 5 * time.Second
	minTTL               = fsm.Millis(1000)
	longestLock          = 24 * time.Hour // what is locked longer is lost, not worked on
	minDuplicateWindow   = fsm.Millis(20_000)
	liftedWindow         = fsm.Millis(1000) // with LiftLimits; the emulator takes less than 20 s, too
	maxDuplicateWindow   = fsm.Millis(7 * 86_400_000)
	minAutoDelete        = fsm.Millis(5 * 60_000)
	defaultSizeMegabytes = 1024
	maxMetadataChars     = 1024
	maxForwardChars      = 1024 // a URL with a name of 260 characters
	// partitionedSizes: an entity with EnablePartitioning stores and reports sixteen times the size
	// that was asked for, as the original does.
	partitionedSizes = 16
)

// properties are the elements of a description as they came: read-only and unknown ones are there
// too and are never asked for.
type properties struct {
	elements map[string]*element
	options  *element // properties that the original does not have, nil if none are given
}

// parseDescription finds the description in an Atom entry. kind is the element's local name. Order,
// prefixes and unknown elements do not matter; a property given twice is an error.
func parseDescription(body io.Reader) (kind string, p properties, err error) {
	description, err := parseContent(body)
	if err != nil {
		return "", p, err
	}
	p.elements = make(map[string]*element, len(description.children))
	for _, e := range description.children {
		name := e.name.Local
		switch {
		case e.null:
		case e.name.Space == optionSpace && name == optionsElement && p.options == nil:
			p.options = e
		case e.name.Space == connectSpace && p.elements[name] == nil:
			p.elements[name] = e
		case e.name.Space == connectSpace || e.name.Space == optionSpace:
			return "", p, badRequest("The property %s is given twice, or unknown.", clip(name))
		}
	}
	return description.name.Local, p, nil
}

// parseContent finds what an Atom entry holds.
func parseContent(body io.Reader) (*element, error) {
	root, err := parseXML(body)
	if err != nil {
		return nil, err
	}
	if root.name.Space != atomSpace || root.name.Local != "entry" {
		return nil, badRequest("The request body is not an Atom entry.")
	}
	content := root.child(atomSpace, "content")
	if content == nil || len(content.children) != 1 {
		return nil, badRequest("The content of the Atom entry is not one description.")
	}
	description := content.children[0]
	if description.name.Space != connectSpace {
		return nil, badRequest("The content of the Atom entry is not a known description.")
	}
	return description, nil
}

// form reads typed values and keeps the first problem. An empty element counts as absent, except
// for free text.
type form struct {
	properties
	kind    string // "Queue", "Topic" or "Subscription", for texts
	problem *problem
}

func (f *form) fail(p *problem) {
	if f.problem == nil {
		f.problem = p
	}
}

func (f *form) text(name string) (string, bool) {
	if f.elements[name] == nil {
		return "", false
	}
	text := strings.TrimSpace(f.elements[name].text)
	return text, text != ""
}

func (f *form) flag(name string, absent bool) bool {
	text, ok := f.text(name)
	if !ok {
		return absent
	}
	switch strings.ToLower(text) {
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	f.fail(badProperty(name, text, "The value is neither true nor false."))
	return absent
}

func (f *form) number(name string, absent, least, most uint64) uint64 {
	text, ok := f.text(name)
	if !ok {
		return absent
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		f.fail(badProperty(name, text, "The value must be a number from %d to %d.", least, most))
		return absent
	}
	return n
}

// duration reads a duration from least to most; part gets what is below a millisecond, see
// [parseDuration].
func (f *form) duration(name string, absent, least, most fsm.Millis, part *uint16) fsm.Millis {
	*part = 0
	text, ok := f.text(name)
	if !ok {
		return absent
	}
	d, below, err := parseDuration(text)
	if err != nil {
		f.fail(badProperty(name, text, "The value is not a duration of ISO 8601 up to %s.", infinite))
		return absent
	}
	if d < least || beyond(d, below, most) {
		text := "The value supplied must be between " + longClock(least) + " and " + longClock(most) + "."
		f.fail(badProperty(name, clockDuration(d), "%s", text))
		return absent
	}
	*part = below
	return d
}

// beyond reports whether a duration with its part below a millisecond is longer than most.
func beyond(d fsm.Millis, part uint16, most fsm.Millis) bool {
	return d > most || d == most && part > 0 && most < fsm.Unlimited
}

func (f *form) lock(most fsm.Millis, part *uint16) fsm.Millis {
	const name = "LockDuration"
	absent := min(fsm.Millis(60_000), most)
	text, _ := f.text(name)
	if d, below, err := parseDuration(text); err == nil && beyond(d, below, most) {
		limit := fmt.Sprintf("'%s' minutes", strconv.FormatFloat(float64(most)/60_000, 'g', 4, 64))
		refusal := badProperty(name, clockDuration(d),
			"The supplied lock time exceeds the allowed maximum of %s.", limit)
		if f.kind == kindNames[fsm.Subscription] {
			refusal.subCode = 0
		}
		f.fail(refusal)
		return absent
	}
	return f.duration(name, absent, fsm.Millis(minLock.Milliseconds()), most, part)
}

func (f *form) free(name string, most int) string {
	if f.elements[name] == nil {
		return ""
	}
	text := f.elements[name].text
	if n := utf8.RuneCountInString(text); n > most {
		f.fail(badProperty(name, text, "The value is %d characters long, the limit is %d.", n, most))
		return ""
	}
	return text
}

// address reads the name or URL of an entity. Scheme and host come back in lower case, as from the
// service; the path keeps its letters.
func (f *form) address(name string) string {
	text := strings.TrimSpace(f.free(name, maxForwardChars))
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	host, path, slash := strings.Cut(rest, "/")
	if slash {
		path = "/" + path
	}
	return strings.ToLower(scheme) + "://" + strings.ToLower(host) + path
}

// fixed reads a property that never changes after creation (S-261).
func (f *form) fixed(name string, old *bool, refusal *problem) bool {
	if old == nil {
		return f.flag(name, false)
	}
	if f.flag(name, *old) != *old {
		f.fail(refusal)
	}
	return *old
}

func (f *form) cannotChange(name string) *problem {
	return badRequest("The value for the %s property of an existing %s cannot be changed", name,
		f.kind)
}

// statuses are the settable ones, by index.
var statuses = [...]string{
	fsm.Active:          "Active",
	fsm.Disabled:        "Disabled",
	fsm.SendDisabled:    "SendDisabled",
	fsm.ReceiveDisabled: "ReceiveDisabled",
}

func (f *form) status() fsm.Status {
	text, ok := f.text("Status")
	if !ok {
		return fsm.Active
	}
	for status, name := range statuses {
		if strings.EqualFold(text, name) {
			return fsm.Status(status)
		}
	}
	f.fail(badProperty("Status", text, "The value is not a status that can be set."))
	return fsm.Active
}
