package rest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// Options that the original has not are set in an element of a namespace of its own, at the end of a description. It
// is written only if something in it is set, so a stock client never meets it; .NET sends back what it did not
// understand.
const (
	optionSpace    = "urn:busbar:entity"
	optionsElement = "Options"
)

// Bounds of options.
const (
	maxHistoryCount = 1_000_000
	maxHistoryBytes = 1 << 30
	maxRest         = fsm.Millis(7 * 86_400_000) // the longest that a message may rest
	maxMultiplier   = 10_000                     // percent
	maxPercent      = 100
)

// option is one of them: at is a *bool, *fsm.Millis, *uint32 or *uint64 of the descriptor, most the
// largest value in milliseconds, bytes or pieces.
type option struct {
	name string
	at   any
	most uint64
}

// optionsOf lists the options of d, in the order in which they are written.
func optionsOf(d *fsm.Descriptor) []option {
	return []option{
		{"NoDeadLetter", &d.NoDeadLetter, 0},
		{"ProcessedHistory", &d.ProcessedHistory, 0},
		{"ProcessedHistoryBody", &d.ProcessedHistoryBody, 0},
		{"AcceptedHistory", &d.AcceptedHistory, 0},
		{"HistoryCount", &d.HistoryCount, maxHistoryCount},
		{"HistoryAge", &d.HistoryAge, uint64(fsm.Unlimited)},
		{"HistoryMaxBytes", &d.HistoryMaxBytes, maxHistoryBytes},
		{"RetryMin", &d.RetryBackoff.Min, uint64(maxRest)},
		{"RetryMax", &d.RetryBackoff.Max, uint64(maxRest)},
		{"RetryMultiplierPercent", &d.RetryBackoff.Multiplier, maxMultiplier},
		{"RetryJitterPercent", &d.RetryBackoff.Jitter, maxPercent},
	}
}

// readOptions takes over the options that are given; the others stay, because most clients do not
// know them.
func (f *form) readOptions(d *fsm.Descriptor) {
	if f.options == nil {
		return
	}
	for _, e := range f.options.children {
		found := false
		for _, o := range optionsOf(d) {
			if e.name.Space == optionSpace && e.name.Local == o.name {
				found = true
				if err := o.set(strings.TrimSpace(e.text)); err != nil {
					f.fail(badProperty(o.name, e.text, "%v.", err))
				}
			}
		}
		if !found {
			f.fail(badRequest("The option %s is unknown.", clip(e.name.Local)))
		}
	}
	if b := d.RetryBackoff; b.Max != 0 && b.Min > b.Max {
		f.fail(badRequest("RetryMin exceeds RetryMax."))
	}
}

func (o option) set(text string) error {
	var n uint64
	switch at := o.at.(type) {
	case *bool:
		b, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return fmt.Errorf("the value is neither true nor false")
		}
		*at = b
		return nil
	case *fsm.Millis:
		d, _, err := parseDuration(text)
		if err != nil || uint64(d) > o.most {
			return fmt.Errorf("the value is not a duration of ISO 8601 up to %s",
				formatDuration(fsm.Millis(o.most)))
		}
		*at = d
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > o.most {
		return fmt.Errorf("the value must be a number from 0 to %d", o.most)
	}
	switch at := o.at.(type) {
	case *uint32:
		*at = uint32(min(n, math.MaxUint32))
	case *uint64:
		*at = n
	}
	return nil
}

// text returns the value, "" if it is the zero value.
func (o option) text() string {
	switch at := o.at.(type) {
	case *bool:
		if *at {
			return "true"
		}
	case *fsm.Millis:
		if *at != 0 {
			return formatDuration(*at)
		}
	case *uint32:
		if *at != 0 {
			return strconv.FormatUint(uint64(*at), 10)
		}
	case *uint64:
		if *at != 0 {
			return strconv.FormatUint(*at, 10)
		}
	}
	return ""
}

func writeOptions(p *page, d *fsm.Descriptor) {
	copied := *d // options point into it; a shared descriptor is not handed out for writing
	begun := false
	for _, o := range optionsOf(&copied) {
		value := o.text()
		if value == "" {
			continue
		}
		if !begun {
			p.raw("<" + optionsElement + ` xmlns="` + optionSpace + `">`)
			begun = true
		}
		p.tag(o.name, value)
	}
	if begun {
		p.raw("</" + optionsElement + ">")
	}
}
