package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// MaxWords is the number of words that a sentence may have.
const MaxWords = 25

const allowedFile = "scripts/prose/allowed.txt"

func main() {
	list := flag.Bool("list", false, "print every sentence that counts")
	write := flag.Bool("write", false, "write the counts of now into "+allowedFile+", where they are lower")
	flag.Parse()
	if err := run(os.Stdout, *list, *write); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, list, write bool) error {
	faults, err := Read(".")
	if err != nil {
		return err
	}
	now := Count(faults)
	allowed, err := readAllowed(allowedFile)
	if err != nil {
		return err
	}
	if list {
		for _, f := range faults {
			fmt.Fprintf(out, "%s:%d: %s: %s\n", f.Path, f.Line, f.Kind, f.Text)
		}
	}
	worse := Worse(now, allowed)
	if write {
		lower(allowed, now)
		if err := writeAllowed(allowedFile, allowed); err != nil {
			return err
		}
	}
	if len(worse) > 0 {
		return fmt.Errorf("more sentences than %s allows; -list shows them:\n%s", allowedFile, strings.Join(worse, "\n"))
	}
	return nil
}

// Counts are the sentences of a room that docs/STYLE.md forbids.
type Counts struct {
	Long   int // of more than MaxWords words
	Nobody int // whose first word names nobody
}

// Count sums faults up by room.
func Count(faults []Fault) map[string]Counts {
	all := map[string]Counts{}
	for _, f := range faults {
		c := all[f.Room]
		if f.Kind == Long {
			c.Long++
		} else {
			c.Nobody++
		}
		all[f.Room] = c
	}
	return all
}

// Worse says which rooms have more than is allowed. A room that is not in the list may have none.
func Worse(now, allowed map[string]Counts) []string {
	var worse []string
	for room, n := range now {
		if was := allowed[room]; n.Long > was.Long || n.Nobody > was.Nobody {
			worse = append(worse, fmt.Sprintf("%s: %d of more than %d words (%d allowed), %d that begin with nobody (%d allowed)",
				room, n.Long, MaxWords, was.Long, n.Nobody, was.Nobody))
		}
	}
	sort.Strings(worse)
	return worse
}

// lower takes the counts of now where they are lower. A new room begins with what it has.
func lower(allowed, now map[string]Counts) {
	for room, was := range allowed {
		n := now[room]
		allowed[room] = Counts{min(n.Long, was.Long), min(n.Nobody, was.Nobody)}
	}
	for room, n := range now {
		if _, ok := allowed[room]; !ok {
			allowed[room] = n
		}
	}
}

func readAllowed(file string) (map[string]Counts, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]Counts{}
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		var room string
		var c Counts
		if _, err := fmt.Sscanf(line, "%s %d %d", &room, &c.Long, &c.Nobody); err != nil {
			return nil, fmt.Errorf("%s: %q: want a room and two counts: %w", file, line, err)
		}
		all[room] = c
	}
	return all, nil
}

func writeAllowed(file string, all map[string]Counts) error {
	var b strings.Builder
	b.WriteString("# Sentences of each room that docs/STYLE.md forbids: of more than 25 words, and with a first word that names nobody.\n" +
		"# Numbers only go down: go run ./scripts/prose -write.\n")
	rooms := make([]string, 0, len(all))
	for room := range all {
		rooms = append(rooms, room)
	}
	sort.Strings(rooms)
	for _, room := range rooms {
		fmt.Fprintf(&b, "%s %d %d\n", room, all[room].Long, all[room].Nobody)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
