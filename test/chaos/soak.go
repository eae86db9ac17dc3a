package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// The budgets of a soak: what a node may use more after the last quiet moment than after the first.
// The first look comes after a fault, when every replica has been opened and every link was made.
const (
	moreGoroutines = 1.25 // clients come and go between looks
	moreFiles      = 1.25
	moreHeap       = 2.0 // without a forced collection the heap is anywhere below twice the live part
	moreDisk       = 3.0 // logs and bodies are recycled, not removed
	slackHeap      = 64 << 20
	slackCount     = 50
	slackDisk      = 256 << 20
)

// usage is what one node uses.
type usage struct{ goroutines, files, heap, disk float64 }

// budget compares looks at the nodes.
type budget struct {
	on          bool
	first, last map[string]usage
}

func newBudget(on bool) *budget {
	return &budget{on: on, first: map[string]usage{}, last: map[string]usage{}}
}

// look notes what every node uses now. A node that does not answer is left out.
func (b *budget) look(ctx context.Context, bed *bed) {
	if !b.on {
		return
	}
	for _, n := range bed.nodes {
		text, err := n.Get(ctx, "/metrics")
		if err != nil {
			continue
		}
		u := usage{disk: size(n.Dir)}
		for s := bufio.NewScanner(strings.NewReader(string(text))); s.Scan(); {
			name, value, _ := strings.Cut(s.Text(), " ")
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				continue
			}
			switch name {
			case "go_goroutines":
				u.goroutines = v
			case "process_open_fds":
				u.files = v
			case "go_memstats_heap_inuse_bytes":
				u.heap = v
			}
		}
		if _, ok := b.first[n.ID]; !ok {
			b.first[n.ID] = u
		}
		b.last[n.ID] = u
	}
}

func size(dir string) (total float64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				total += float64(info.Size())
			}
		}
		return nil // files come and go while we look
	})
	return total
}

// over tells every budget that was overdrawn.
func (b *budget) over() (out []string) {
	check := func(who, what string, first, last, factor, slack float64) {
		if last > first*factor+slack {
			out = append(out, fmt.Sprintf("%s: %s rose from %.0f to %.0f", who, what, first, last))
		}
	}
	for who, f := range b.first {
		l := b.last[who]
		check(who, "goroutines", f.goroutines, l.goroutines, moreGoroutines, slackCount)
		check(who, "open files", f.files, l.files, moreFiles, slackCount)
		check(who, "heap bytes", f.heap, l.heap, moreHeap, slackHeap)
		check(who, "disk bytes", f.disk, l.disk, moreDisk, slackDisk)
	}
	return out
}
