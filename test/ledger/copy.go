package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Name names a message of which clients know the history.
type Name struct{ Queue, ID string }

// Life is what clients know of one message. Times are nanoseconds on one clock; 0 stands for never.
type Life struct {
	Begun   int64 // its send
	Kept    int64 // its send was acknowledged
	Leaving int64 // a client asked first that it be removed
	Gone    int64 // its removal was acknowledged
	// Number is its sequence number, Content a hash of what was sent. 0 if clients do not know.
	Number  int64
	Content uint64
	// Timed says that the message was scheduled, so its number tells when it came and not when it was sent.
	Timed bool
}

// Found is a message in an entity that was restored.
type Found struct {
	Name
	Number  int64
	Content uint64
}

// JudgeCopy compares what was restored with what clients did while a backup was taken, between two times. It returns a sentence for
// each message that is lost, doubled, changed, out of order or passed by a later one. A message may not be there either if it was
// removed before, or sent afterwards.
func JudgeCopy(began, ended int64, lives map[Name]Life, found []Found) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	seen := map[Name]int{}
	for _, f := range found {
		l, known := lives[f.Name]
		switch {
		case !known:
			fault("%v is there, and nobody sent it", f.Name)
			continue
		case l.Begun > ended:
			fault("%v is there, and was sent after the backup", f.Name)
		case l.Gone != 0 && l.Gone <= began:
			fault("%v is there, and was removed before the backup", f.Name)
		}
		if seen[f.Name]++; seen[f.Name] > 1 {
			fault("%v is there %d times", f.Name, seen[f.Name])
		}
		if l.Number != 0 && f.Number != l.Number {
			fault("%v has the number %d, and had %d", f.Name, f.Number, l.Number)
		}
		if l.Content != 0 && f.Content != l.Content {
			fault("%v has another content than was sent", f.Name)
		}
	}
	for name, l := range lives {
		if l.Kept != 0 && l.Kept <= began && (l.Leaving == 0 || l.Leaving > ended) && seen[name] == 0 {
			fault("%v was acknowledged before the backup, and is missing", name)
		}
	}
	faults = append(faults, disordered(lives, found)...)
	faults = append(faults, passed(ended, lives, found)...)
	slices.Sort(faults)
	return faults
}

// disordered returns a sentence for each message with a lower number than one of its share whose send ended before its own began.
func disordered(lives map[Name]Life, found []Found) (faults []string) {
	type share struct {
		queue  string
		prefix int64
	}
	type end struct {
		at  int64
		who *Found
	}
	begins, ends := map[share][]end{}, map[share][]end{}
	for i := range found {
		f := &found[i]
		l, known := lives[f.Name]
		if !known || l.Timed {
			continue
		}
		k := share{f.Queue, f.Number >> prefixShift}
		begins[k] = append(begins[k], end{l.Begun, f})
		if l.Kept != 0 {
			ends[k] = append(ends[k], end{l.Kept, f})
		}
	}
	inTime := func(a, b end) int { return cmp.Compare(a.at, b.at) }
	for k, list := range begins {
		slices.SortFunc(list, inTime)
		slices.SortFunc(ends[k], inTime)
		var highest *Found
		before := ends[k]
		for _, b := range list {
			for len(before) > 0 && before[0].at < b.at {
				if highest == nil || before[0].who.Number > highest.Number {
					highest = before[0].who
				}
				before = before[1:]
			}
			if highest != nil && b.who.Number < highest.Number {
				faults = append(faults, fmt.Sprintf("%v has the number %d, and %v, whose send had ended before, has %d", b.who.Name,
					b.who.Number, highest.Name, highest.Number))
			}
		}
	}
	return faults
}

// passed returns a sentence for each message that is missing although a later one is there. The send of the later one began when
// its own had ended. It is looked for where an entity has one share: the numbers have no prefix.
func passed(ended int64, lives map[Name]Life, found []Found) (faults []string) {
	latest, seen := map[string]*Found{}, map[Name]bool{}
	spread := map[string]bool{}
	for i := range found {
		f := &found[i]
		seen[f.Name] = true
		spread[f.Queue] = spread[f.Queue] || f.Number>>prefixShift != 0
		if l, known := lives[f.Name]; known && (latest[f.Queue] == nil || l.Begun > lives[latest[f.Queue].Name].Begun) {
			latest[f.Queue] = f
		}
	}
	for name, l := range lives {
		last := latest[name.Queue]
		if last == nil || spread[name.Queue] || seen[name] || l.Kept == 0 || l.Leaving != 0 && l.Leaving <= ended {
			continue
		}
		if l.Kept < lives[last.Name].Begun {
			faults = append(faults, fmt.Sprintf("%v is missing, and %v is there, which was sent later", name, last.Name))
		}
	}
	return faults
}

// prefixShift is where the prefix of a share begins in a number.
const prefixShift = 48
