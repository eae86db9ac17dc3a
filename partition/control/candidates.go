package control

import (
	"cmp"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Votes reports whether a node has a vote in the group of a replica.
func Votes(s *replica.Status, n fsm.NodeID) bool {
	for _, v := range s.Voters {
		if v == n {
			return true
		}
	}
	return false
}

// Heard reports whether a majority of the voters answered, this one included.
func Heard(own *replica.Status, others []replica.Status) bool {
	n := 1
	for i := range others {
		if rivals(own, &others[i]) {
			n++
		}
	}
	return n > len(own.Voters)/2
}

// Best reports whether no other voter that answered has more log; equals go to one whose clock is right,
// and then to the lowest id.
func Best(own *replica.Status, others []replica.Status) bool {
	return !slices.ContainsFunc(others, func(o replica.Status) bool {
		if !rivals(own, &o) {
			return false
		}
		c := compareLogs(own, &o)
		switch {
		case o.Leading || c < 0:
			return true
		case c == 0 && o.WrongClock != own.WrongClock:
			return own.WrongClock
		}
		return c == 0 && o.Node < own.Node
	})
}

// Ahead reports whether this replica has more log than every other voter that answered, so that none of
// them gets its vote.
func Ahead(own *replica.Status, others []replica.Status) bool {
	return !slices.ContainsFunc(others, func(o replica.Status) bool {
		return rivals(own, &o) && (o.Leading || compareLogs(own, &o) <= 0)
	})
}

// Stands reports whether another voter is in a newer term than this replica. That voter stands, or it follows somebody
// who does. The request for the vote of this replica is under way then.
func Stands(own *replica.Status, others []replica.Status) bool {
	return slices.ContainsFunc(others, func(o replica.Status) bool { return rivals(own, &o) && o.Term > own.Term })
}

// rivals reports whether o is of a replica that could lead the group of own in its place.
func rivals(own, o *replica.Status) bool {
	return o.Partition == own.Partition && o.Failure == "" && Votes(own, o.Node)
}

// compareLogs is positive if a's log is the newer one, as votes see it.
func compareLogs(a, b *replica.Status) int {
	return cmp.Or(cmp.Compare(a.LastTerm, b.LastTerm), cmp.Compare(a.Last, b.Last))
}
