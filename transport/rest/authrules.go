package rest

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// authRules reads the entity's shared access policies. Absent rules keep those there are, an empty
// list clears them. A rule without keys keeps the keys it had, or gets new ones.
func (a *API) authRules(f *form, old *fsm.Descriptor) []fsm.AuthRule {
	given := f.elements["AuthorizationRules"]
	if given == nil {
		if old == nil {
			return nil
		}
		return old.AuthRules
	}
	if len(given.children) > auth.MaxPoliciesPerScope {
		f.fail(badRequest("An entity has at most %d authorization rules.", auth.MaxPoliciesPerScope))
		return nil
	}
	var rules []fsm.AuthRule
	for _, e := range given.children {
		rule, ok := readRule(f, e)
		if !ok {
			return nil
		}
		for _, other := range rules {
			if other.Name == rule.Name {
				f.fail(badRequest("The authorization rule %s is given twice.", clip(rule.Name)))
				return nil
			}
		}
		completeRule(&rule, old)
		if err := policyOf(rule).Validate(); err != nil {
			f.fail(badRequest("Bad Request. %s.", err))
			return nil
		}
		rules = append(rules, rule)
	}
	return rules
}

func readRule(f *form, e *element) (rule fsm.AuthRule, ok bool) {
	if e.name.Space != connectSpace || e.name.Local != "AuthorizationRule" {
		f.fail(badRequest("AuthorizationRules holds something that is not an authorization rule."))
		return rule, false
	}
	value := func(name string) string {
		if c := e.child(connectSpace, name); c != nil && !c.null {
			return strings.TrimSpace(c.text)
		}
		return ""
	}
	rule.Name = value("KeyName")
	rule.PrimaryKey, rule.SecondaryKey = value("PrimaryKey"), value("SecondaryKey")
	rule.CreatedAt, rule.ModifiedAt = readTime(value("CreatedTime")), readTime(value("ModifiedTime"))
	rights := e.child(connectSpace, "Rights")
	if rights == nil {
		rights = &element{}
	}
	var names []string
	for _, r := range rights.children {
		var right *bool
		var name string
		switch strings.ToLower(strings.TrimSpace(r.text)) {
		case "send":
			right, name = &rule.Send, "Send"
		case "listen":
			right, name = &rule.Listen, "Listen"
		case "manage":
			right, name = &rule.Manage, "Manage"
		}
		if right == nil || *right {
			f.fail(badProperty("AuthorizationRules", r.text, "The right is unknown or given twice."))
			return rule, false
		}
		*right = true
		names = append(names, name)
	}
	rule.Order = fsm.OrderOfRights(names)
	return rule, true
}

// readTime returns 0 for what is no time, or one before the epoch: clients echo the zero of their
// languages. The times of rules are the client's own; the service makes none up, and Go's tests
// compare what they sent with what they read.
func readTime(text string) fsm.Wall {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return fsm.Wall(max(0, at.UnixMilli()))
}

// completeRule fills in the keys that the client left out.
func completeRule(rule *fsm.AuthRule, old *fsm.Descriptor) {
	if old != nil {
		for _, before := range old.AuthRules {
			if before.Name != rule.Name {
				continue
			}
			if rule.PrimaryKey == "" {
				rule.PrimaryKey = before.PrimaryKey
			}
			if rule.SecondaryKey == "" {
				rule.SecondaryKey = before.SecondaryKey
			}
		}
	}
	if rule.PrimaryKey == "" {
		rule.PrimaryKey = newKey()
	}
	if rule.SecondaryKey == "" {
		rule.SecondaryKey = newKey()
	}
}

// newKey draws 256 bits. Clients want the text to be 44 characters.
func newKey() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // it ends the process where there is no randomness
	return base64.StdEncoding.EncodeToString(key[:])
}

// policyOf is the rule as package auth knows it.
func policyOf(rule fsm.AuthRule) auth.Policy {
	p := auth.Policy{
		Name: rule.Name, Primary: auth.Secret(rule.PrimaryKey),
		Secondary: auth.Secret(rule.SecondaryKey),
	}
	for _, r := range [...]struct {
		has   bool
		right auth.Right
	}{{rule.Send, auth.Send}, {rule.Listen, auth.Listen}, {rule.Manage, auth.Manage}} {
		if r.has {
			p.Rights |= r.right
		}
	}
	return p
}

// PoliciesOf returns the shared access policies of an entity, for auth.Policies.Replace under the
// entity's name.
func PoliciesOf(d *fsm.Descriptor) []auth.Policy {
	policies := make([]auth.Policy, 0, len(d.AuthRules))
	for _, rule := range d.AuthRules {
		policies = append(policies, policyOf(rule))
	}
	return policies
}
