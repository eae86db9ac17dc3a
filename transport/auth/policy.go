package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of policies, those of the original: 12 rules per scope, names of 256 characters. A key
// is free text, because the well-known development key is no base64.
const (
	MaxPoliciesPerScope = 12
	MaxPolicyNameBytes  = 256
	MaxKeyBytes         = 256
)

// DefaultExpiryTolerance is how long after its expiry a token still counts. Clients renew at nine
// tenths of a token's life or minutes before its end, by their own clocks; a renewal that is late
// by a skewed clock or a slow connection must not end the links it renews.
const DefaultExpiryTolerance = 5 * time.Minute

// Secret is a key. It prints and marshals as a placeholder, whatever the verb.
type Secret string

const redacted = "[redacted]"

// String returns a placeholder.
func (Secret) String() string { return redacted }

// GoString returns a placeholder.
func (Secret) GoString() string { return redacted }

// Format writes a placeholder for every verb: %x and %q do not ask String.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns a placeholder; it serves JSON, YAML and XML.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Policy is a shared access policy: a name, two keys and rights. Both keys are valid at once, so that one can be
// changed while the other is in use.
type Policy struct {
	Name      string
	Primary   Secret
	Secondary Secret // "" if there is none
	Rights    Right
}

// Validate returns what is wrong with the policy.
func (p Policy) Validate() error {
	switch {
	case p.Name == "" || len(p.Name) > MaxPolicyNameBytes:
		return fmt.Errorf("policy name of %d bytes, want 1 to %d", len(p.Name), MaxPolicyNameBytes)
	case strings.ContainsFunc(p.Name, notURLSafe):
		return fmt.Errorf("policy name %q holds characters that a URL must escape", p.Name)
	case p.Primary == "":
		return fmt.Errorf("policy %s has no primary key", p.Name)
	case len(p.Primary) > MaxKeyBytes || len(p.Secondary) > MaxKeyBytes:
		return fmt.Errorf("policy %s has a key of more than %d bytes", p.Name, MaxKeyBytes)
	case p.Rights == 0 || p.Rights&^All != 0:
		return fmt.Errorf("policy %s has no right, or an unknown one", p.Name)
	case p.Rights&Manage != 0 && p.Rights != All:
		return fmt.Errorf("policy %s has Manage without Send and Listen", p.Name)
	}
	return nil
}

func notURLSafe(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_.~", r)
}

// Policies is the set of shared access policies of a namespace and its entities. It is safe for
// concurrent use. A change is seen by the next Verify; who keeps claims asks [Policies.Stands] again
// when [Policies.Version] has changed.
type Policies struct {
	salt  [sha256.Size]byte // of marks
	hosts map[string]bool   // names of the broker in lower case; fixed before the first Verify

	tolerance atomic.Int64 // as a time.Duration
	version   atomic.Uint64

	mu      sync.RWMutex
	scopes  map[string]map[string]Policy // by scope path, then by name
	issuers map[string]*issuer           // by name
}

// New returns an empty set. tolerance is how long after its expiry a token still counts, usually
// [DefaultExpiryTolerance]; 0 keeps tokens to the second.
func New(tolerance time.Duration) (*Policies, error) {
	if tolerance < 0 {
		return nil, errors.New("expiry tolerance is negative")
	}
	var salt [sha256.Size]byte
	_, _ = rand.Read(salt[:]) // it never fails
	p := &Policies{salt: salt, hosts: map[string]bool{"localhost": true}, scopes: map[string]map[string]Policy{}}
	p.tolerance.Store(int64(tolerance))
	return p, nil
}

// SetTolerance changes how long after its expiry a token that is shown from now on counts.
func (p *Policies) SetTolerance(tolerance time.Duration) { p.tolerance.Store(int64(max(0, tolerance))) }

// late is how long after its expiry a token counts.
func (p *Policies) late() time.Duration { return time.Duration(p.tolerance.Load()) }

// KnowHosts names the broker: an audience may begin with one of these hosts without a scheme before it. Names with a
// dot or a port are known as hosts without it. It must be called before the first Verify.
func (p *Policies) KnowHosts(names ...string) {
	for _, name := range names {
		if name != "" {
			p.hosts[strings.ToLower(name)] = true
		}
	}
}

// Replace sets the policies of one scope, the path of an entity or "" for the namespace, in place
// of those it had; none removes the scope. On an error nothing changes.
func (p *Policies) Replace(scope string, policies ...Policy) error {
	byName, err := index(policies)
	if err != nil {
		return fmt.Errorf("policies of %q: %w", scope, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version.Add(1)
	if len(byName) == 0 {
		delete(p.scopes, EntityPath(scope))
		return nil
	}
	p.scopes[EntityPath(scope)] = byName
	return nil
}

// ReplaceAll sets the policies of all scopes in place of those there were, in one step.
func (p *Policies) ReplaceAll(byScope map[string][]Policy) error {
	scopes := make(map[string]map[string]Policy, len(byScope))
	for scope, policies := range byScope {
		byName, err := index(policies)
		if err != nil {
			return fmt.Errorf("policies of %q: %w", scope, err)
		}
		if len(byName) > 0 {
			scopes[EntityPath(scope)] = byName
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if maps.EqualFunc(p.scopes, scopes, maps.Equal[map[string]Policy, map[string]Policy]) {
		return nil
	}
	p.version.Add(1)
	p.scopes = scopes
	return nil
}

// mark tells a key from others without holding it. It is the key's HMAC under a secret of the process, so that a
// claim that is printed shows nothing.
type mark [sha256.Size]byte

func (p *Policies) markOf(key Secret) (m mark) {
	if key == "" {
		return m
	}
	mac := hmac.New(sha256.New, p.salt[:])
	mac.Write([]byte(key))
	mac.Sum(m[:0])
	return m
}

// Version changes with every change of the policies.
func (p *Policies) Version() uint64 { return p.version.Load() }

// Stands reports whether the policies that a claim comes from still have its key and its rights. A JSON web token
// stands until it expires, as long as its issuer is configured as it was.
func (p *Policies) Stands(c Claim) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if c.issuer != nil {
		return p.issuers[c.Issuer] == c.issuer
	}
	if c.key == (mark{}) {
		return true
	}
	if !p.standsLocked(c, granted{c.Scope, c.Rights}) {
		return false
	}
	if c.granted != nil {
		for _, g := range *c.granted {
			if !p.standsLocked(c, g) {
				return false
			}
		}
	}
	return true
}

func (p *Policies) standsLocked(c Claim, g granted) bool {
	policy, ok := p.scopes[g.scope][c.Policy]
	return ok && (p.markOf(policy.Primary) == c.key || p.markOf(policy.Secondary) == c.key) &&
		policy.Rights&g.rights == g.rights
}

func index(policies []Policy) (map[string]Policy, error) {
	if len(policies) > MaxPoliciesPerScope {
		return nil, fmt.Errorf("%d policies, at most %d", len(policies), MaxPoliciesPerScope)
	}
	byName := make(map[string]Policy, len(policies))
	for _, policy := range policies {
		if err := policy.Validate(); err != nil {
			return nil, err
		}
		if _, ok := byName[policy.Name]; ok {
			return nil, fmt.Errorf("policy %s is named twice", policy.Name)
		}
		byName[policy.Name] = policy
	}
	return byName, nil
}

// candidate is a policy that may have signed a token, with its scope.
type candidate struct {
	scope  string
	policy Policy
}

// reaching returns the policies of that name on the entities that path leads through, the longest
// first, and on the namespace. A path of n segments has at most n+1.
func (p *Policies) reaching(path, name string) []candidate {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var found []candidate
	for scope := path; ; {
		if policy, ok := p.scopes[scope][name]; ok && scopeCovers(scope, path) {
			found = append(found, candidate{scope, policy})
		}
		if scope == "" {
			return found
		}
		scope = scope[:max(0, strings.LastIndexByte(scope, '/'))]
	}
}

// Claimed returns the name of the policy that a token says it is of, and "" if no policy has that name. Nothing is proved
// by it. A client may have given its key as the name, so other names are not told.
func (p *Policies) Claimed(token string) string {
	text, ok := cutPrefixFold(strings.TrimSpace(token), sasPrefix)
	if !ok || len(text) > MaxTokenBytes {
		return ""
	}
	t, err := p.parse(text)
	if err != nil {
		return ""
	}
	return p.ClaimedName(t.policy)
}

// ClaimedName is [Policies.Claimed] for a name.
func (p *Policies) ClaimedName(name string) string {
	if len(p.named(name)) == 0 {
		return ""
	}
	return name
}

// named returns the policies of that name in every scope, the namespace's first.
func (p *Policies) named(name string) []candidate {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var found []candidate
	if policy, ok := p.scopes[""][name]; ok {
		found = append(found, candidate{"", policy})
	}
	for _, scope := range slices.Sorted(maps.Keys(p.scopes)) {
		if policy, ok := p.scopes[scope][name]; ok && scope != "" {
			found = append(found, candidate{scope, policy})
		}
	}
	return found
}
