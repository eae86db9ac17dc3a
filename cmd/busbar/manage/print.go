package manage

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
)

// counters are the counts of a description, by the name that JSON has for them.
var counters = [...]struct{ json, element string }{
	{"active", "ActiveMessageCount"}, {"deadLetter", "DeadLetterMessageCount"}, {"scheduled", "ScheduledMessageCount"},
	{"transfer", "TransferMessageCount"}, {"transferDeadLetter", "TransferDeadLetterMessageCount"},
}

// object is an entity as JSON: its name, then the elements of its description in lower camel case.
func object(d *entities.Description) map[string]any {
	out := map[string]any{"name": d.Path, "kind": strings.ToLower(d.Kind)}
	for _, e := range d.Nodes {
		name := e.XMLName.Local
		switch name {
		case "CountDetails", "Options", "AuthorizationRules", "DefaultRuleDescription":
			continue // keys are nobody's business at a terminal
		}
		if e.Text != "" {
			out[camel(name)] = typed(e.Text)
		}
	}
	counts := map[string]int64{}
	for _, c := range counters {
		if n, known := d.Count(c.element); known {
			counts[c.json] = n
		}
	}
	if len(counts) > 0 {
		out["counts"] = counts
	}
	if options := d.Child("Options"); options != nil {
		set := map[string]any{}
		for _, o := range options.Nodes {
			set[camel(o.XMLName.Local)] = typed(o.Text)
		}
		out["options"] = set
	}
	return out
}

func camel(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// typed is a text of a description as JSON has it: a truth value, a number or a text.
func typed(text string) any {
	switch {
	case text == "true" || text == "false":
		return text == "true"
	case json.Valid([]byte(text)) && strings.Trim(text, "0123456789") == "":
		return json.Number(text)
	}
	return text
}

// printOne writes one entity: a row, or an object. dropped may be nil.
func printOne(w io.Writer, f *dial.Flags, d *entities.Description, dropped map[string]uint64) error {
	if f.Output == "json" {
		out := object(d)
		if dropped != nil {
			out["dropped"] = dropped
		}
		return dial.PrintJSON(w, out)
	}
	if err := printAll(w, f, d.Kind, []*entities.Description{d}); err != nil {
		return err
	}
	if len(dropped) == 0 {
		return nil
	}
	rows := [][]string{{"DROPPED", "MESSAGES"}}
	for _, why := range slices.Sorted(maps.Keys(dropped)) {
		rows = append(rows, []string{why, strconv.FormatUint(dropped[why], 10)})
	}
	fmt.Fprintln(w)
	return dial.PrintTable(w, rows)
}

// printAll writes entities of one kind: a table, or an array.
func printAll(w io.Writer, f *dial.Flags, kind string, all []*entities.Description) error {
	if f.Output == "json" {
		out := make([]map[string]any, len(all))
		for i, d := range all {
			out[i] = object(d)
		}
		return dial.PrintJSON(w, out)
	}
	rows := [][]string{heading(kind)}
	for _, d := range all {
		rows = append(rows, row(kind, d))
	}
	if f.Wide {
		for i := range rows {
			var d *entities.Description
			if i > 0 {
				d = all[i-1]
			}
			rows[i] = append(rows[i], wideCells(d)...)
		}
	}
	return dial.PrintTable(w, rows)
}

// wideColumns are the further columns of a wide table, by the properties that they show.
var wideColumns = [][2]string{{"TTL", "DefaultMessageTimeToLive"}, {"PARTITIONED", "EnablePartitioning"}, {"DUPLICATES", "RequiresDuplicateDetection"},
	{"MAX MB", "MaxSizeInMegabytes"}, {"FORWARD TO", "ForwardTo"}, {"DEAD TO", "ForwardDeadLetteredMessagesTo"}, {"CREATED", "CreatedAt"},
	{"UPDATED", "UpdatedAt"}, {"ACCESSED", "AccessedAt"}}

// wideCells are the further cells of an entity, those of the heading for nil.
func wideCells(d *entities.Description) (cells []string) {
	for _, column := range wideColumns {
		if d == nil {
			cells = append(cells, column[0])
			continue
		}
		text := d.Value(column[1])
		switch {
		case text == "", strings.HasPrefix(text, "0001-"): // never
			text = "-"
		case column[0] == "TTL":
			text = shortSpan(text)
		case column[1] == "ForwardTo", column[0] == "DEAD TO":
			text = entities.TargetOf(text)
		}
		cells = append(cells, text)
	}
	return cells
}

func heading(kind string) []string {
	switch kind {
	case entities.Topic:
		return []string{"NAME", "STATUS", "SUBSCRIPTIONS", "SCHEDULED", "TTL", "BYTES"}
	case entities.Subscription:
		return []string{"TOPIC", "NAME", "STATUS", "ACTIVE", "DEAD", "SESSIONS", "LOCK", "DELIVERIES", "FORWARD TO"}
	}
	return []string{"NAME", "STATUS", "ACTIVE", "DEAD", "SCHEDULED", "SESSIONS", "LOCK", "DELIVERIES", "BYTES", "DLQ"}
}

func row(kind string, d *entities.Description) []string {
	count := func(name string) string { return counter(d, name) }
	orDash := func(text string) string {
		if text == "" {
			return "-"
		}
		return text
	}
	yes := func(name string) string {
		if d.Property(name) == "true" {
			return "yes"
		}
		return "no"
	}
	lock := shortSpan(d.Value("LockDuration"))
	switch kind {
	case entities.Topic:
		return []string{d.Path, d.Value("Status"), orDash(d.Value("SubscriptionCount")), count("ScheduledMessageCount"),
			orDash(shortSpan(d.Value("DefaultMessageTimeToLive"))), orDash(d.Value("SizeInBytes"))}
	case entities.Subscription:
		topic, name, _ := entities.SplitSubscription(d.Path)
		return []string{topic, name, d.Value("Status"), count("ActiveMessageCount"), count("DeadLetterMessageCount"),
			yes("RequiresSession"), lock, d.Value("MaxDeliveryCount"), orDash(entities.TargetOf(d.Value("ForwardTo")))}
	}
	dlq := "yes"
	if yes("NoDeadLetter") == "yes" {
		dlq = "no"
	}
	return []string{d.Path, d.Value("Status"), count("ActiveMessageCount"), count("DeadLetterMessageCount"),
		count("ScheduledMessageCount"), yes("RequiresSession"), lock, d.Value("MaxDeliveryCount"),
		orDash(d.Value("SizeInBytes")), dlq}
}

// PrintList writes entities of all kinds: a table, or an array.
func PrintList(w io.Writer, f *dial.Flags, all []*entities.Description) error {
	if f.Output == "json" {
		return printAll(w, f, "", all)
	}
	rows := [][]string{{"PATH", "KIND", "STATUS", "ACTIVE", "DEAD", "SCHEDULED", "TRANSFER"}}
	for _, d := range all {
		cells := []string{d.Path, strings.ToLower(d.Kind), d.Value("Status")}
		for _, name := range [...]string{"ActiveMessageCount", "DeadLetterMessageCount", "ScheduledMessageCount", "TransferMessageCount"} {
			cells = append(cells, counter(d, name))
		}
		rows = append(rows, cells)
	}
	return dial.PrintTable(w, rows)
}

// counter is one of the counters as a table has it; "-" where not all partitions answered.
func counter(d *entities.Description, name string) string {
	if n, known := d.Count(name); known {
		return strconv.FormatInt(n, 10)
	}
	return "-"
}
