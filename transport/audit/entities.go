package audit

import (
	"reflect"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// propertyNames are the names by which users know the fields of a description. A field that is not here has its own name.
var propertyNames = map[string]string{
	"MaxDelivery": "MaxDeliveryCount", "DefaultTTL": "DefaultMessageTimeToLive", "MaxMessageBytes": "MaxMessageSizeInBytes",
	"DeadLetterOnExpiration": "DeadLetteringOnMessageExpiration", "DetectDuplicates": "RequiresDuplicateDetection",
	"DuplicateWindow": "DuplicateDetectionHistoryTimeWindow", "ForwardDeadLettersTo": "ForwardDeadLetteredMessagesTo",
	"DeadLetterOnFilterError": "DeadLetteringOnFilterEvaluationExceptions", "EnableBatched": "EnableBatchedOperations",
	"FilterBeforePublish": "FilteringMessagesBeforePublishing", "PartitionSubscriptions": "EnableSubscriptionPartitioning",
	"MaxSizeMegabytes": "MaxSizeInMegabytes", "Partitioned": "EnablePartitioning", "AuthRules": "AuthorizationRules",
}

// ownFields are the catalog's own and no property, or say the same as another one.
var ownFields = map[string]bool{
	"ID": true, "Version": true, "Name": true, "Parent": true, "Partitions": true, "Prefixes": true, "Origins": true,
	"AsSent": true, "CreatedAt": true, "UpdatedAt": true, "MaxSizeBytes": true, "MaxMessageKilobytes": true,
}

var (
	kindNames   = map[fsm.EntityKind]string{fsm.Queue: "queue", fsm.Topic: "topic", fsm.Subscription: "subscription"}
	statusNames = map[fsm.Status]string{fsm.Active: "Active", fsm.Disabled: "Disabled", fsm.SendDisabled: "SendDisabled",
		fsm.ReceiveDisabled: "ReceiveDisabled"}
)

// Changed notes the properties of an entity that differ. before is nil for an entity that is made, and after for one that is
// deleted; then all properties that are set are noted.
func (e *Entry) Changed(before, after *fsm.Descriptor) {
	if e == nil || before == nil && after == nil {
		return
	}
	e.event.Before, e.event.After = differences(before, after)
	for _, d := range []*fsm.Descriptor{before, after} {
		if d != nil {
			e.event.Entity = d.Name
		}
	}
}

func differences(before, after *fsm.Descriptor) (was, is map[string]any) {
	none := new(fsm.Descriptor)
	was, is = map[string]any{}, map[string]any{}
	if before == nil {
		before, was = none, nil
	}
	if after == nil {
		after, is = none, nil
	}
	old, now := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range old.NumField() {
		field := old.Type().Field(i).Name
		if ownFields[field] || reflect.DeepEqual(old.Field(i).Interface(), now.Field(i).Interface()) {
			continue
		}
		name := field
		if known, ok := propertyNames[field]; ok {
			name = known
		}
		if was != nil {
			was[name] = shown(old.Field(i).Interface(), nil)
		}
		if is != nil {
			is[name] = shown(now.Field(i).Interface(), before)
		}
	}
	return was, is
}

// shown is a value as the log has it. before is the entity as it was, for what tells of a change without its value.
func shown(value any, before *fsm.Descriptor) any {
	switch v := value.(type) {
	case fsm.EntityKind:
		return kindNames[v]
	case fsm.Status:
		return statusNames[v]
	case fsm.Millis:
		if v >= fsm.Unlimited {
			return "unlimited"
		}
		return (time.Duration(v) * time.Millisecond).String()
	case fsm.RetryBackoff:
		return map[string]any{"min": shown(v.Min, nil), "max": shown(v.Max, nil), "multiplierPercent": v.Multiplier, "jitterPercent": v.Jitter}
	case []fsm.AuthRule:
		return shownPolicies(v, before)
	case []fsm.Rule:
		names := make([]string, len(v))
		for i := range v {
			names[i] = v[i].Name
		}
		return names
	case string:
		return clip(v, maxTextBytes)
	}
	return value
}

// shownPolicies are policies without their keys. Of a key the log says that it is new or changed, and nothing that a guess could be
// tried on.
func shownPolicies(all []fsm.AuthRule, before *fsm.Descriptor) []map[string]any {
	list := make([]map[string]any, len(all))
	for i, p := range all {
		list[i] = map[string]any{"name": p.Name, "rights": strings.Join(p.Rights(), ",")}
		if before == nil {
			continue
		}
		list[i]["keys"] = "new"
		for _, old := range before.AuthRules {
			if old.Name == p.Name {
				list[i]["keys"] = keyChange(&old, &p)
			}
		}
	}
	return list
}

func keyChange(old, now *fsm.AuthRule) string {
	first, second := old.PrimaryKey != now.PrimaryKey, old.SecondaryKey != now.SecondaryKey
	switch {
	case first && second:
		return "both changed"
	case first:
		return "primary changed"
	case second:
		return "secondary changed"
	}
	return "unchanged"
}

// RuleChanged notes a rule as it was and as it is; nil is one that is not there.
func (e *Entry) RuleChanged(before, after *fsm.Rule) {
	if e != nil {
		e.event.Before, e.event.After = Rule(before), Rule(after)
	}
}

// Rule is a rule as the log has it, nil for none.
func Rule(r *fsm.Rule) map[string]any {
	if r == nil {
		return nil
	}
	source := r.Source
	source.Expression, source.Action = clip(source.Expression, maxTextBytes), clip(source.Action, maxTextBytes)
	return map[string]any{"rule": r.Name, "filter": source}
}
