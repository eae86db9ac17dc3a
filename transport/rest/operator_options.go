package rest

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// Bounds of options.
const (
	mostHistoryRecords = 1_000_000
	mostHistoryBytes   = 1 << 30
	mostRest           = fsm.Millis(7 * 24 * 60 * 60 * 1000) // the longest that a message may rest
	mostMultiplier     = 10_000                              // percent
)

// OptionsView are the options of an entity that stock clients have no property for. In a change, what
// is absent stays.
type OptionsView struct {
	// NoDeadLetter: there is no dead-letter queue (S-169).
	NoDeadLetter         *bool        `json:"noDeadLetter,omitempty"`
	ProcessedHistory     *bool        `json:"processedHistory,omitempty"`
	ProcessedHistoryBody *bool        `json:"processedHistoryBody,omitempty"`
	AcceptedHistory      *bool        `json:"acceptedHistory,omitempty"`
	HistoryCount         *uint32      `json:"historyCount,omitempty"`     // 0 stands for 100
	HistoryAgeMillis     *uint64      `json:"historyAgeMillis,omitempty"` // 0 stands for a day
	HistoryMaxBytes      *uint64      `json:"historyMaxBytes,omitempty"`  // 0 stands for 16 MiB
	RetryBackoff         *BackoffView `json:"retryBackoff,omitempty"`
}

// BackoffView is how long a message rests before it is delivered again; zero is no rest.
type BackoffView struct {
	MinMillis         uint64 `json:"minMillis"`
	MaxMillis         uint64 `json:"maxMillis"`
	MultiplierPercent uint32 `json:"multiplierPercent"`
	JitterPercent     uint32 `json:"jitterPercent"`
}

func optionsView(d *fsm.Descriptor) OptionsView {
	age := uint64(d.HistoryAge)
	return OptionsView{
		NoDeadLetter:     &d.NoDeadLetter,
		ProcessedHistory: &d.ProcessedHistory, ProcessedHistoryBody: &d.ProcessedHistoryBody,
		AcceptedHistory: &d.AcceptedHistory, HistoryCount: &d.HistoryCount, HistoryAgeMillis: &age,
		HistoryMaxBytes: &d.HistoryMaxBytes,
		RetryBackoff: &BackoffView{uint64(d.RetryBackoff.Min), uint64(d.RetryBackoff.Max),
			d.RetryBackoff.Multiplier, d.RetryBackoff.Jitter},
	}
}

// options changes them.
func (q *inspection) options() (any, error) {
	if err := q.only(); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(q.http.Body)
	if err != nil {
		return nil, err
	}
	var v OptionsView
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	if err := in.Decode(&v); err != nil {
		return nil, badRequest("The body must be a JSON object of options: %v.", err)
	}
	return again(func() (any, error) { return q.setOptions(&v) })
}

func (q *inspection) setOptions(v *OptionsView) (any, error) {
	old, err := q.o.deps.Entities.Get(q.ctx, q.d.Name)
	if err != nil {
		return nil, err
	}
	d := *old
	if err := v.apply(&d); err != nil {
		return nil, err
	}
	updated, err := q.o.deps.Entities.Update(q.ctx, d)
	if err != nil {
		return nil, err
	}
	audit.Of(q.ctx).Changed(old, updated)
	q.o.deps.Log.Info("operator changed options", "entity", d.Name, "policy", q.claim.Policy)
	return optionsView(updated), nil
}

// apply writes what is given into the description, within the bounds of each.
func (v *OptionsView) apply(d *fsm.Descriptor) error {
	set := func(to, from *bool) {
		if from != nil {
			*to = *from
		}
	}
	set(&d.NoDeadLetter, v.NoDeadLetter)
	set(&d.ProcessedHistory, v.ProcessedHistory)
	set(&d.ProcessedHistoryBody, v.ProcessedHistoryBody)
	set(&d.AcceptedHistory, v.AcceptedHistory)
	var err error
	bound := func(name string, value, most uint64) bool {
		if value > most && err == nil {
			err = badRequest("%s is %d, the limit is %d.", name, value, most)
		}
		return value <= most
	}
	if n := v.HistoryCount; n != nil && bound("historyCount", uint64(*n), mostHistoryRecords) {
		d.HistoryCount = *n
	}
	if n := v.HistoryAgeMillis; n != nil && bound("historyAgeMillis", *n, uint64(fsm.Unlimited)) {
		d.HistoryAge = fsm.Millis(*n)
	}
	if n := v.HistoryMaxBytes; n != nil && bound("historyMaxBytes", *n, mostHistoryBytes) {
		d.HistoryMaxBytes = *n
	}
	if b := v.RetryBackoff; b != nil {
		bound("minMillis", b.MinMillis, uint64(mostRest))
		bound("maxMillis", b.MaxMillis, uint64(mostRest))
		bound("multiplierPercent", uint64(b.MultiplierPercent), mostMultiplier)
		bound("jitterPercent", uint64(b.JitterPercent), 100)
		if err == nil && b.MaxMillis != 0 && b.MaxMillis < b.MinMillis {
			err = badRequest("maxMillis is %d, less than minMillis %d.", b.MaxMillis, b.MinMillis)
		}
		d.RetryBackoff = fsm.RetryBackoff{Min: fsm.Millis(b.MinMillis), Max: fsm.Millis(b.MaxMillis),
			Multiplier: b.MultiplierPercent, Jitter: b.JitterPercent}
	}
	return err
}
