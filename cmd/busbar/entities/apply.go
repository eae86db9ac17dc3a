package entities

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// Applier makes what a file asks for, by the management API.
type Applier struct {
	API    *dial.Management
	DryRun bool // nothing is changed, and Say tells what would be
	Update bool // properties and rules that differ are changed; without it they are told
	// Prune deletes what the file does not have: rules of its subscriptions, subscriptions of its topics, and entities.
	Prune bool
	Say   func(format string, args ...any) // tells a person; Export needs none

	// Created, Updated and Deleted count what was done, or would be in a dry run. Drifted counts the properties and
	// rules that differ from the file and stay so.
	Created, Updated, Deleted, Drifted int
}

// Apply creates what is missing and tells what is there and differs. With Update it changes that, too. The whole file is
// judged by the broker before anything is made.
func (a *Applier) Apply(ctx context.Context, all []Spec) error {
	list, err := a.ordered(ctx, all)
	if err != nil {
		return err
	}
	if err := Check(list, func(path, element, inner string) error { return a.API.Check(ctx, path, element, inner) }); err != nil {
		return err
	}
	for _, e := range list {
		if err := a.entity(ctx, e); err != nil {
			return e.errorf("%w", err)
		}
	}
	if a.Prune {
		return a.prune(ctx, all)
	}
	return nil
}

// Summary says in a sentence what was done.
func (a *Applier) Summary() string {
	verb := func(n int, done, would string) string {
		if a.DryRun {
			done = would
		}
		return fmt.Sprintf("%d %s", n, done)
	}
	text := verb(a.Created, "created", "would be created")
	if a.Update {
		text += ", " + verb(a.Updated, "updated", "would be updated")
	}
	if a.Prune {
		text += ", " + verb(a.Deleted, "deleted", "would be deleted")
	}
	return text + fmt.Sprintf(", %d differ", a.Drifted)
}

// awaits reports whether e forwards to one of those that are not made yet, or is below it.
func awaits(e Spec, waiting []Spec) bool {
	for _, other := range waiting {
		if other.path == e.path {
			continue
		}
		if e.kind == Subscription && strings.HasPrefix(e.path, other.path+"/Subscriptions/") {
			return true
		}
		for _, p := range e.props {
			if strings.HasPrefix(p.Name, "Forward") && strings.EqualFold(TargetOf(p.Value), other.path) {
				return true
			}
		}
	}
	return false
}

// TargetOf is the entity that a forward target names.
func TargetOf(target string) string {
	if u, err := url.Parse(target); err == nil && u.Scheme != "" && u.Host != "" {
		target = u.Path
	}
	return strings.Trim(target, "/")
}

func (a *Applier) entity(ctx context.Context, e Spec) error {
	there, err := Get(ctx, a.API, e.path)
	if err != nil {
		return err
	}
	if there == nil {
		return a.create(ctx, e)
	}
	if there.Kind != e.kind {
		return fmt.Errorf("%s is there already, and no %s", e.path, strings.ToLower(e.kind))
	}
	var change []Property
	for _, p := range e.props {
		got := there.Property(p.Name)
		if sameValue(p.Name, got, p.Value) {
			continue
		}
		if !a.Update {
			a.drift("line %d, %s: %s of %s is %q, the file wants %q", p.line, p.pointer, p.Name, e.path, got, p.Value)
			continue
		}
		change = append(change, p.Property)
		a.would("set %s of %s: %q becomes %q", p.Name, e.path, got, p.Value)
	}
	if len(change) > 0 {
		a.Updated++
		if !a.DryRun {
			if _, err := Update(ctx, a.API, there, change); err != nil {
				return err
			}
		}
	}
	return a.rulesOf(ctx, e)
}

// would tells what is done, or what would be in a dry run.
func (a *Applier) would(format string, args ...any) {
	if a.DryRun {
		format = "would " + format
	}
	a.Say(format, args...)
}

func (a *Applier) drift(format string, args ...any) {
	a.Drifted++
	a.Say(format, args...)
}

func (a *Applier) create(ctx context.Context, e Spec) error {
	a.Created++
	if a.DryRun {
		a.Say("would create %s %s", strings.ToLower(e.kind), e.path)
		return nil
	}
	if _, err := a.API.Create(ctx, e.path, e.kind+"Description", elementsOf(e)); err != nil {
		return err
	}
	a.Say("created %s %s", strings.ToLower(e.kind), e.path)
	for i, r := range e.rules {
		if i == 0 {
			continue // it came with the subscription, so nothing slips past it
		}
		if _, err := a.API.Create(ctx, e.path+"/Rules/"+r.Name, ruleElement, r.XML()); err != nil {
			return r.errorf("%w", err)
		}
	}
	return nil
}

// rulesOf compares the rules of a subscription that is there.
func (a *Applier) rulesOf(ctx context.Context, e Spec) error {
	if len(e.rules) == 0 {
		return nil
	}
	for _, r := range e.rules {
		if err := a.ruleOf(ctx, e.path+"/Rules/"+r.Name, r); err != nil {
			return r.errorf("%w", err)
		}
	}
	return a.extraRules(ctx, e)
}

func (a *Applier) ruleOf(ctx context.Context, path string, r ruleSpec) error {
	there, err := a.API.Get(ctx, path)
	if err != nil {
		return err
	}
	if there.Content == nil {
		a.Created++
		if a.DryRun {
			a.Say("would create rule %s", path)
			return nil
		}
		if _, err := a.API.Create(ctx, path, ruleElement, r.XML()); err != nil {
			return err
		}
		a.Say("created rule %s", path)
		return nil
	}
	want, err := dial.ParseElement(r.XML())
	if err != nil {
		return err
	}
	got, wanted := RuleText(there.Content), RuleText(want)
	switch {
	case got == wanted:
		return nil
	case !a.Update:
		a.drift("line %d, %s: the rule %s is %s, the file wants %s", r.line, r.pointer, path, got, wanted)
		return nil
	}
	a.Updated++
	a.would("set the rule %s: %s becomes %s", path, got, wanted)
	if a.DryRun {
		return nil
	}
	_, err = a.API.Update(ctx, path, ruleElement, r.XML())
	return err
}

// extraRules deletes or tells of rules that the file does not have: with them a subscription gets more.
func (a *Applier) extraRules(ctx context.Context, e Spec) error {
	rules, err := a.API.List(ctx, e.path+"/Rules")
	if err != nil {
		return err
	}
	for _, r := range rules {
		if slices.ContainsFunc(e.rules, func(s ruleSpec) bool { return strings.EqualFold(s.Name, r.Title) }) {
			continue
		}
		if !a.Prune {
			a.drift("line %d, %s: %s has a rule %s that the file does not have", e.line, e.pointer, e.path, r.Title)
			continue
		}
		if err := a.delete(ctx, "rule", e.path+"/Rules/"+r.Title); err != nil {
			return err
		}
	}
	return nil
}

func (a *Applier) delete(ctx context.Context, kind, path string) error {
	a.Deleted++
	a.would("delete %s %s", kind, path)
	if a.DryRun {
		return nil
	}
	return a.API.Delete(ctx, path)
}

// prune deletes entities that the file does not have. A topic goes with its subscriptions.
func (a *Applier) prune(ctx context.Context, all []Spec) error {
	wanted := map[string]bool{}
	for _, e := range all {
		wanted[strings.ToLower(e.path)] = true
	}
	there, err := ListAll(ctx, a.API)
	if err != nil {
		return err
	}
	for _, d := range there {
		topic, _, below := SplitSubscription(d.Path)
		if wanted[strings.ToLower(d.Path)] || (below && !wanted[strings.ToLower(topic)]) {
			continue
		}
		if err := a.delete(ctx, strings.ToLower(d.Kind), d.Path); err != nil {
			return err
		}
	}
	return nil
}

// elementsOf writes the elements of a new entity.
func elementsOf(e Spec) string {
	set := make([]Property, len(e.props))
	for i, p := range e.props {
		set[i] = p.Property
	}
	var first *Rule
	if len(e.rules) > 0 {
		first = &e.rules[0].Rule
	}
	return elements(set, firstRule(first))
}
