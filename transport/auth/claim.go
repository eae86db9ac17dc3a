package auth

import "time"

// Claim is what a verified token proves. The zero Claim allows nothing.
type Claim struct {
	Policy   string    // name of the policy that signed, or the subject of a JSON web token
	Issuer   string    // of a JSON web token; "" of a policy
	Scope    string    // normalised path of the entity that the policy belongs to; "" is the namespace
	Audience string    // normalised path that the token was made for; "" is the whole namespace
	Expires  time.Time // as the token says (se); zero: never
	Until    time.Time // Expires plus the tolerance: the moment to act on; zero: never
	Rights   Right

	granted *[]granted // rights on further entities: of a JSON web token, or of a PLAIN key that several entities have
	key     mark       // of the key that signed, zero for a JSON web token
	issuer  *issuer    // that signed, nil for a policy
}

// granted are rights on one entity.
type granted struct {
	scope  string
	rights Right
}

// Allows reports whether the claim holds all of r on path: an entity's name, a node below it or a full address.
// Audience and policy must both cover it. A token for an entity opens its $management, its subqueues and, for a
// topic, its subscriptions. Expiry is not looked at: see [Claim.ExpiredAt].
func (c Claim) Allows(path string, r Right) bool {
	return r != 0 && c.rightsOn(path)&r == r
}

// AllowsAny is [Claim.Allows] for operations that one of several rights opens.
func (c Claim) AllowsAny(path string, r Right) bool { return c.rightsOn(path)&r != 0 }

// OnNamespace reports whether the claim holds all of r on the namespace itself, as creating an entity
// takes. The audience may be narrower.
func (c Claim) OnNamespace(r Right) bool { return c.Scope == "" && r != 0 && c.Rights&r == r }

func (c Claim) rightsOn(path string) Right {
	p := EntityPath(path)
	if !covers(c.Audience, p) {
		return 0
	}
	var rights Right
	if scopeCovers(c.Scope, p) {
		rights = c.Rights
	}
	if c.granted != nil {
		for _, g := range *c.granted {
			if scopeCovers(g.scope, p) {
				rights |= g.rights
			}
		}
	}
	return rights
}

// ExpiredAt reports whether the claim must no longer be honoured.
func (c Claim) ExpiredAt(now time.Time) bool {
	return !c.Until.IsZero() && !now.Before(c.Until)
}

// Entities calls f with each entity that the claim opens besides its scope, and the rights on it.
func (c Claim) Entities(f func(path string, rights Right)) {
	if c.granted == nil {
		return
	}
	for _, g := range *c.granted {
		f(g.scope, g.rights)
	}
}
