package transport

import (
	"context"
	"errors"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/rulemap"
)

const (
	// symbolRulesNotFound goes with an empty list of rules.
	symbolRulesNotFound amqp.Symbol = "com.microsoft:rules-not-found"
	// defaultRulesPage is how many rules a request asks for that does not say it.
	defaultRulesPage = 100
	// maxRulesBytes bounds the rules of one answer, which has at least one; clients page with skip. The
	// .NET library of before 2020 asks once, for all.
	maxRulesBytes = 1 << 20
	// answerSlack is what an answer takes beside its rules.
	answerSlack = 1 << 10
)

// rules returns what the subscription's rules are changed through, or the failure.
func (k *call) rules() (Rules, *response) {
	if k.desc.Kind != fsm.Subscription || k.addr.sub != fsm.Main {
		r := k.refuse(fsm.InvalidOperation, "Only subscriptions have rules.")
		return nil, &r
	}
	if k.s.rules == nil {
		r := k.fail(amqpError(amqp.ConditionNotImplemented, "This node cannot change rules."))
		return nil, &r
	}
	return k.s.rules, nil
}

// ruleName reads the name that add-rule and remove-rule need.
func (k *call) ruleName() (string, *response) {
	name, ok := k.text("rule-name")
	if !ok || name == "" {
		r := k.badArgument("rule-name must be a string that is not empty")
		return "", &r
	}
	return name, nil
}

// ruleFailure is the answer to a change that was not made.
func (k *call) ruleFailure(err error, name string) response {
	var refused *fsm.RefusedError
	switch {
	case errors.Is(err, fsm.ErrNoEntity):
		k.missing = true // the rule, or all of the subscription
		return k.fail(amqpError(amqp.ConditionNotFound, "%s",
			notFoundText(k.s, k.addr.path()+"/Rules/"+refusal.Clip(name))))
	case errors.As(err, &refused) && refused.Refusal == fsm.QuotaExceeded:
		return k.exhausted(refused.Detail)
	case errors.As(err, &refused) && refused.Refusal == fsm.EntityExists:
		return k.fail(amqpError(amqp.ConditionEntityAlreadyExists,
			"The messaging entity '%s:Topic:%s|%s' already exists.", k.s.cfg.Namespace,
			strings.Replace(k.addr.path(), "/Subscriptions/", "|", 1), refusal.Clip(name)))
	case errors.As(err, &refused):
		return k.refuse(refused.Refusal, refused.Detail)
	}
	return k.failure(err)
}

// exhausted is the answer to a rule beyond a quota of the topic (S-229).
func (k *call) exhausted(why string) response {
	return k.fail(amqpError(amqp.ConditionResourceLimitExceeded,
		"The quota of rules is exhausted: %s.", why))
}

// addRule adds a rule to a subscription; messages accepted from then on are judged by it (S-217,
// S-222).
func addRule(ctx context.Context, k *call) response {
	rules, bad := k.rules()
	if bad != nil {
		return *bad
	}
	name, bad := k.ruleName()
	if bad != nil {
		return *bad
	}
	v, _ := k.field("rule-description")
	description, ok := v.(amqp.Map)
	if !ok {
		return k.badArgument("rule-description must be a map")
	}
	source, err := rulemap.Parse(description)
	if err == nil {
		_, err = source.Compile()
	}
	switch {
	case rule.TooLong(err):
		return k.exhausted(err.Error())
	case err != nil:
		return k.badArgument("rule '%s': %v.", refusal.Clip(name), err)
	}
	added := fsm.Rule{Name: name, Source: source}
	k.ruleChanged(nil, &added)
	if _, err := rules.PutRule(ctx, k.desc.ID, added, false); err != nil {
		return k.ruleFailure(err, name)
	}
	return response{code: codeOK}
}

// removeRule takes a rule away, $Default included (S-217).
func removeRule(ctx context.Context, k *call) response {
	rules, bad := k.rules()
	if bad != nil {
		return *bad
	}
	name, bad := k.ruleName()
	if bad != nil {
		return *bad
	}
	k.ruleChanged(k.desc.Rule(name), nil)
	if _, err := rules.DropRule(ctx, k.desc.ID, name); err != nil {
		return k.ruleFailure(err, name)
	}
	return response{code: codeOK}
}

// enumerateRules lists the rules of a subscription as of now.
func enumerateRules(ctx context.Context, k *call) response {
	rules, bad := k.rules()
	if bad != nil {
		return *bad
	}
	skip, ok := k.integer("skip", 0)
	top, ok2 := k.integer("top", defaultRulesPage)
	if !ok || !ok2 || skip < 0 || top < 1 {
		return k.badArgument("skip and top must be numbers, skip not negative and top positive")
	}
	d, err := rules.Get(ctx, k.desc.Name)
	if err != nil {
		return k.failure(err)
	}
	if d.ID != k.desc.ID {
		return k.moveTo(d)
	}
	all := d.RulesByName()
	all = all[min(int(min(skip, 1<<31)), len(all)):]
	all = all[:min(int(min(top, 1<<31)), len(all))]
	if len(all) == 0 {
		return response{code: codeNoContent, problem: &amqp.Error{
			Condition: symbolRulesNotFound, Description: "No rules found"}}
	}
	var list amqp.List
	bytes := 0
	for i := range all {
		rule := amqp.Map{{Key: "rule-description", Value: rulemap.Describe(&all[i])}}
		encoded, err := amqp.AppendValue(nil, rule)
		if bytes += len(encoded); err == nil && bytes > k.room && i > 0 {
			break
		}
		list = append(list, rule)
	}
	body, err := amqp.AppendValue(nil, amqp.Map{{Key: "rules", Value: list}})
	if err != nil {
		k.s.log.Error("encode rules", "entity", k.desc.Name, "error", err)
		return k.fail(amqpError(amqp.ConditionInternalError, "internal error"))
	}
	return response{code: codeOK, body: body}
}
