package manage

import (
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// form is how the text of a property is written on the command line.
type form uint8

const (
	words  form = iota // a text
	truth              // true or false
	number             // a number from 0
	span               // a duration
)

// property is one property of an entity and its flag.
type property struct {
	flag, element string
	form          form
	kinds         []string // of entities that have it
	fixed         bool     // it is given at the creation only
	help          string
}

var (
	senders   = []string{entities.Queue, entities.Topic}
	receivers = []string{entities.Queue, entities.Subscription}
	everybody = []string{entities.Queue, entities.Topic, entities.Subscription}
)

// duplicateWindow turns duplicate detection on by being given (S-195).
const duplicateWindow = "duplicate-window"

// properties is in the order of the help.
func properties() []property {
	return []property{
		{"session", "RequiresSession", truth, receivers, true, "messages belong to sessions"},
		{"partitioned", "EnablePartitioning", truth, senders, true, "spread it over all partitions"},
		{"lock-duration", "LockDuration", span, receivers, false, "how long a received message is locked, 5s to 5m"},
		{"max-delivery-count", "MaxDeliveryCount", number, receivers, false, "deliveries before a message is dead-lettered"},
		{"default-ttl", "DefaultMessageTimeToLive", span, everybody, false, "how long a message lives that does not say so itself"},
		{"dead-letter-on-expiration", "DeadLetteringOnMessageExpiration", truth, receivers, false, "keep expired messages as dead letters"},
		{"dead-letter-on-filter-error", "DeadLetteringOnFilterEvaluationExceptions", truth, []string{entities.Subscription}, false,
			"keep messages whose rule cannot be evaluated as dead letters"},
		{"no-dead-letter", "NoDeadLetter", truth, receivers, false,
			"no dead-letter queue: what would be dead-lettered is dropped and counted"},
		{duplicateWindow, "DuplicateDetectionHistoryTimeWindow", span, senders, false, "drop messages whose id was seen in this time"},
		{"auto-delete-on-idle", "AutoDeleteOnIdle", span, everybody, false, "delete it after this time without use"},
		{"max-size-mb", "MaxSizeInMegabytes", number, senders, false, "limit of all messages together"},
		{"max-message-kb", "MaxMessageSizeInKilobytes", number, senders, false, "limit of one message"},
		{"forward-to", "ForwardTo", words, receivers, false, "queue or topic that every message goes on to"},
		{"forward-dead-letters-to", "ForwardDeadLetteredMessagesTo", words, receivers, false, "queue or topic that dead letters go on to"},
		{"status", "Status", words, everybody, false, "Active, Disabled, SendDisabled or ReceiveDisabled"},
		{"metadata", "UserMetadata", words, everybody, false, "text of the user's own"},
	}
}

// flagsOf are the flags of one command, by the name of the property's element.
type flagsOf struct {
	kind  string
	given map[string]*string
}

// addProperties gives a command a flag for each property that it may set.
func addProperties(c *cobra.Command, kind string, creation bool) *flagsOf {
	f := &flagsOf{kind: kind, given: map[string]*string{}}
	for _, p := range properties() {
		if !slices.Contains(p.kinds, kind) || (p.fixed && !creation) {
			continue
		}
		value := new(string)
		f.given[p.element] = value
		c.Flags().Var(&propertyValue{form: p.form, text: value}, p.flag, p.help)
		if p.form == truth {
			c.Flags().Lookup(p.flag).NoOptDefVal = "true"
		}
	}
	return f
}

// set returns the properties that the command line gives, in the order of the table.
func (f *flagsOf) set(c *cobra.Command, creation bool) ([]entities.Property, error) {
	var all []entities.Property
	for _, p := range properties() {
		value := f.given[p.element]
		if value == nil || !c.Flags().Changed(p.flag) {
			continue
		}
		if p.flag == duplicateWindow && creation {
			all = append(all, entities.Property{Name: "RequiresDuplicateDetection", Value: "true"})
		}
		all = append(all, entities.Property{Name: p.element, Value: *value})
	}
	if !creation && len(all) == 0 {
		return nil, exit.Usagef("nothing is to be changed; %s --help lists the properties", c.CommandPath())
	}
	return all, nil
}

// propertyValue is the value of a flag, as the management API takes it.
type propertyValue struct {
	form form
	text *string
}

// String implements pflag.Value.
func (v *propertyValue) String() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// Type implements pflag.Value: what the help shows behind the flag.
func (v *propertyValue) Type() string {
	return [...]string{words: "text", truth: "bool", number: "number", span: "duration"}[v.form]
}

// Set implements pflag.Value.
func (v *propertyValue) Set(text string) (err error) {
	switch v.form {
	case truth:
		var b bool
		if b, err = strconv.ParseBool(text); err == nil {
			text = strconv.FormatBool(b)
		}
	case number:
		_, err = strconv.ParseUint(text, 10, 63)
	case span:
		text, err = parseSpan(text)
	}
	*v.text = text
	return err
}
