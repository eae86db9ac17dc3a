package client

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// moveRow is a new replica as GET /api/cluster tells of it.
type moveRow struct {
	Partition      int    `json:"partition"`
	Node           string `json:"node"`
	From           string `json:"from"`
	EntriesLeft    uint64 `json:"entriesLeft"`
	BytesSent      uint64 `json:"bytesSent"`
	BytesTotal     uint64 `json:"bytesTotal"`
	BytesPerSecond uint64 `json:"bytesPerSecond"`
}

// text says in a sentence how far the replica is.
func (m *moveRow) text() string {
	var parts []string
	if m.BytesTotal > 0 {
		sent := fmt.Sprintf("%s of %s are sent", bytesText(m.BytesSent), bytesText(m.BytesTotal))
		if m.BytesPerSecond > 0 && m.BytesSent < m.BytesTotal {
			left := time.Duration(float64(m.BytesTotal-m.BytesSent) / float64(m.BytesPerSecond) * float64(time.Second))
			sent += fmt.Sprintf(" at %s a second, about %s left", bytesText(m.BytesPerSecond), left.Round(time.Second))
		}
		parts = append(parts, sent)
	}
	parts = append(parts, fmt.Sprintf("%d entries left", m.EntriesLeft))
	return fmt.Sprintf("partition %d: %s is filled by %s: %s", m.Partition, m.Node, m.From, strings.Join(parts, ", "))
}

// bytesText shows a number of bytes to people.
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, units := float64(n)/unit, "KMGTP"
	for size >= unit && len(units) > 1 {
		size, units = size/unit, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", size, units[0])
}

// progressEvery is the least time between two lines about what moves, unless something else has changed.
const progressEvery = 5 * time.Second

// progressLines prints what a command waits for, as far as that is new.
type progressLines struct {
	text, moves string
	at          time.Time
}

func (p *progressLines) print(w io.Writer, text string, all []moveRow) error {
	var moves []string
	for i := range all {
		moves = append(moves, "  "+all[i].text())
	}
	now := strings.Join(moves, "\n")
	if text == p.text && (now == p.moves || time.Since(p.at) < progressEvery) {
		return nil
	}
	lines := now
	if text != p.text {
		lines = strings.TrimRight(text+"\n"+now, "\n")
	}
	p.text, p.moves, p.at = text, now, time.Now()
	if lines == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, lines)
	return err
}
