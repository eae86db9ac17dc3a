package auth

import "strings"

// Right is a set of the three rights of a shared access policy.
type Right uint8

// The rights. A policy with Manage holds all three.
const (
	Send Right = 1 << iota
	Listen
	Manage

	// All is the set of every right.
	All = Send | Listen | Manage
)

// String lists the rights in the service's words, separated by commas: "Manage,Send,Listen".
func (r Right) String() string {
	var names []string
	for _, n := range [...]struct {
		right Right
		name  string
	}{{Manage, "Manage"}, {Send, "Send"}, {Listen, "Listen"}} {
		if r&n.right != 0 {
			names = append(names, n.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}
