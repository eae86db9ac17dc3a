package auth

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// AddIssuer makes tokens of an issuer acceptable as soon as it has keys.
func (p *Policies) AddIssuer(i Issuer) error {
	if err := i.Validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.issuers) == maxIssuers {
		return fmt.Errorf("more than %d issuers", maxIssuers)
	}
	if p.issuers[i.Name] != nil {
		return fmt.Errorf("issuer %s is there already", i.Name)
	}
	if p.issuers == nil {
		p.issuers = map[string]*issuer{}
	}
	p.issuers[i.Name] = newIssuer(i)
	return nil
}

func newIssuer(i Issuer) *issuer {
	i.Audiences = slices.Clone(i.Audiences)
	for n, audience := range i.Audiences {
		i.Audiences[n] = strings.TrimRight(audience, "/")
	}
	return &issuer{Issuer: i, wanted: make(chan struct{}, 1)}
}

// CheckIssuers returns why [Policies.ReplaceIssuers] would refuse them.
func CheckIssuers(all []Issuer) error {
	if len(all) > maxIssuers {
		return fmt.Errorf("more than %d issuers", maxIssuers)
	}
	seen := map[string]bool{}
	for _, i := range all {
		if err := i.Validate(); err != nil {
			return err
		}
		if seen[i.Name] {
			return fmt.Errorf("issuer %s is there already", i.Name)
		}
		seen[i.Name] = true
	}
	return nil
}

// ReplaceIssuers sets the issuers in place of those there were. An issuer that is as it was keeps its keys and its
// claims, and one with other audiences or grants its keys. The claims of others do not stand any more. On an error nothing
// changes.
func (p *Policies) ReplaceIssuers(all []Issuer) error {
	if err := CheckIssuers(all); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := make(map[string]*issuer, len(all))
	for _, i := range all {
		fresh := newIssuer(i)
		switch old := p.issuers[i.Name]; {
		case old == nil:
		case reflect.DeepEqual(old.Issuer, fresh.Issuer):
			fresh = old
		default:
			fresh.keys = old.known()
		}
		next[i.Name] = fresh
	}
	p.issuers = next
	p.version.Add(1)
	return nil
}

// CheckKeys returns why [Policies.SetKeys] would refuse a document.
func CheckKeys(document []byte) error {
	_, err := parseKeys(document)
	return err
}

// issuer returns the issuer of that name, nil if there is none.
func (p *Policies) issuer(name string) *issuer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.issuers[name]
}

// hasIssuers reports whether any issuer is known.
func (p *Policies) hasIssuers() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.issuers) > 0
}
