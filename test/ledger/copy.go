package ledger

import (
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
}

// Found is a message in an entity that was restored.
type Found struct {
	Name
	Number  int64
	Content uint64
}

// JudgeCopy compares what was restored with what clients did while a backup was taken, between two times. It returns a sentence for
// each message that is lost, doubled, changed, or there although it was removed before, or sent afterwards.
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
	slices.Sort(faults)
	return faults
}
