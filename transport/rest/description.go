package rest

import (
	"fmt"
	"io"
	"math"
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
	minDuplicateWindow   = fsm.Millis(20_000)
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
	texts map[string]string
	rules []*element
	// hasRules tells an empty list, which clears, from none, which keeps.
	hasRules bool
}

// parseDescription finds the description in an Atom entry. kind is the element's local name. Order,
// prefixes and unknown elements do not matter; a property given twice is an error.
func parseDescription(body io.Reader) (kind string, p properties, err error) {
	root, err := parseXML(body)
	if err != nil {
		return "", p, err
	}
	if root.name.Space != atomSpace || root.name.Local != "entry" {
		return "", p, badRequest("The request body is not an Atom entry.")
	}
	content := root.child(atomSpace, "content")
	if content == nil || len(content.children) != 1 {
		return "", p, badRequest("The content of the Atom entry is not one description.")
	}
	description := content.children[0]
	if description.name.Space != connectSpace {
		return "", p, badRequest("The content of the Atom entry is not a known description.")
	}
	p.texts = make(map[string]string, len(description.children))
	for _, e := range description.children {
		name := e.name.Local
		if e.name.Space != connectSpace || e.null {
			continue
		}
		if _, twice := p.texts[name]; twice {
			return "", p, badRequest("The property %s is given twice.", clip(name))
		}
		p.texts[name] = e.text
		if name == "AuthorizationRules" {
			p.rules, p.hasRules = e.children, true
		}
	}
	return description.name.Local, p, nil
}

// form reads typed values and keeps the first problem. An empty element counts as absent, except
// for free text.
type form struct {
	properties
	problem *problem
}

func (f *form) fail(p *problem) {
	if f.problem == nil {
		f.problem = p
	}
}

func (f *form) text(name string) (string, bool) {
	text := strings.TrimSpace(f.texts[name])
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

func (f *form) duration(name string, absent, least, most fsm.Millis) fsm.Millis {
	text, ok := f.text(name)
	if !ok {
		return absent
	}
	d, err := parseDuration(text)
	if err != nil {
		f.fail(badProperty(name, text, "The value is not a duration of ISO 8601 up to %s.", infinite))
		return absent
	}
	if d < least || d > most {
		f.fail(badProperty(name, clockDuration(d), "The value must be a duration from %s to %s.",
			formatDuration(least), formatDuration(most)))
		return absent
	}
	return d
}

func (f *form) lock(most fsm.Millis) fsm.Millis {
	const name = "LockDuration"
	absent := min(fsm.Millis(60_000), most)
	text, _ := f.text(name)
	if d, err := parseDuration(text); err == nil && d > most {
		limit := fmt.Sprintf("'%s' minutes", strconv.FormatFloat(float64(most)/60_000, 'g', 4, 64))
		f.fail(badProperty(name, clockDuration(d),
			"The supplied lock time exceeds the allowed maximum of %s.", limit))
		return absent
	}
	return f.duration(name, absent, fsm.Millis(minLock.Milliseconds()), most)
}

func (f *form) free(name string, most int) string {
	text := f.texts[name]
	if n := utf8.RuneCountInString(text); n > most {
		f.fail(badProperty(name, text, "The value is %d characters long, the limit is %d.", n, most))
		return ""
	}
	return text
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

func cannotChange(name string) *problem {
	return badRequest("The value for the %s property of an existing Queue cannot be changed", name)
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

// describeQueue makes a descriptor from a request. old is nil for a creation. An absent property
// that may change takes its default, because .NET leaves out values that are infinite; an absent
// one that may not change keeps its value (S-261, S-262).
func (a *API) describeQueue(
	name string, p properties, old *fsm.Descriptor,
) (fsm.Descriptor, error) {
	f := &form{properties: p}
	d := fsm.Descriptor{Kind: fsm.Queue, Name: name}
	var session, duplicates, partitioned *bool
	if old != nil {
		d = *old
		session, duplicates = &old.RequiresSession, &old.DetectDuplicates
		partitioned = &old.Partitioned
	}
	d.LockDuration = f.lock(fsm.Millis(a.cfg.MaxLockDuration.Milliseconds()))
	d.RequiresSession = f.fixed("RequiresSession", session, cannotChange("RequiresSession"))
	d.DetectDuplicates = f.fixed("RequiresDuplicateDetection", duplicates,
		cannotChange("RequiresDuplicateDetection"))
	d.Partitioned = f.fixed("EnablePartitioning", partitioned,
		badRequest("Partitioning cannot be changed for Queue."))
	d.DefaultTTL = f.duration("DefaultMessageTimeToLive", fsm.Unlimited, minTTL, fsm.Unlimited)
	d.DeadLetterOnExpiration = f.flag("DeadLetteringOnMessageExpiration", false)
	d.DuplicateWindow = f.duration("DuplicateDetectionHistoryTimeWindow", 600_000,
		minDuplicateWindow, maxDuplicateWindow)
	d.MaxDelivery = uint32(f.number("MaxDeliveryCount", 10, 1, math.MaxInt32))
	d.EnableBatched = f.flag("EnableBatchedOperations", true)
	d.Status = f.status()
	d.ForwardTo = strings.TrimSpace(f.free("ForwardTo", maxForwardChars))
	d.ForwardDeadLettersTo = strings.TrimSpace(
		f.free("ForwardDeadLetteredMessagesTo", maxForwardChars))
	d.UserMetadata = f.free("UserMetadata", maxMetadataChars)
	d.SupportOrdering = f.flag("SupportOrdering", !d.Partitioned)
	d.AutoDeleteOnIdle = f.duration("AutoDeleteOnIdle", fsm.Unlimited, minAutoDelete, fsm.Unlimited)
	d.EnableExpress = f.flag("EnableExpress", false)
	a.sizes(f, &d, old)
	d.AuthRules = a.authRules(f, old)
	switch {
	case f.problem != nil:
		return d, f.problem
	case f.flag("IsAnonymousAccessible", false):
		return d, badProperty("IsAnonymousAccessible", "true", "Anonymous access is not supported.")
	case d.EnableExpress && d.DetectDuplicates:
		return d, badRequest("EnableExpress cannot be combined with RequiresDuplicateDetection.")
	case d.RequiresSession && d.ForwardTo != "":
		return d, badRequest("ForwardTo cannot be combined with RequiresSession.")
	}
	return d, f.problem.orNil()
}

// orNil keeps a nil pointer from becoming an error that is not nil.
func (p *problem) orNil() error {
	if p == nil {
		return nil
	}
	return p
}

// sizes reads the two limits in bytes.
func (a *API) sizes(f *form, d *fsm.Descriptor, old *fsm.Descriptor) {
	const kilobytes = "MaxMessageSizeInKilobytes"
	d.MaxMessageKilobytes = uint32(f.number(kilobytes, 0, 1, maxMessageKilobytes))
	if d.MaxMessageBytes = d.MaxMessageKilobytes << 10; d.MaxMessageBytes == 0 {
		d.MaxMessageBytes = a.cfg.MaxMessageBytes
	}

	const megabytes = "MaxSizeInMegabytes"
	least, most, times := uint64(1), uint64(a.cfg.MaxSizeMegabytes), uint64(1)
	if d.Partitioned {
		times = partitionedSizes
	}
	if d.Partitioned && old != nil {
		// Frozen. A client that read the description sends what it read, one that kept its own
		// sends what it asked for.
		asked := uint64(old.MaxSizeMegabytes)
		given := f.number(megabytes, asked, 1, math.MaxUint32)
		if given != asked && given*partitionedSizes != asked {
			f.fail(cannotChange(megabytes))
		}
		d.MaxSizeMegabytes, d.MaxSizeBytes = old.MaxSizeMegabytes, old.MaxSizeBytes
		return
	}
	size := f.number(megabytes, defaultSizeMegabytes, least, most)
	if text, _ := f.text(megabytes); size%1024 != 0 && !a.cfg.LiftLimits {
		f.fail(badProperty(megabytes, text,
			"The value must be a multiple of 1024, such as 1024;2048;3072;4096;5120."))
	}
	d.MaxSizeMegabytes = uint32(size * times)
	d.MaxSizeBytes = size * times << 20
}
