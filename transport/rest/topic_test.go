package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// put sends a description and fails the test if it is not created.
func (h *house) put(t testing.TB, target, element, elements string) *fsm.Descriptor {
	t.Helper()
	status, text := h.do(t, "PUT", target, entryBody(element, elements))
	if status != http.StatusCreated {
		t.Fatalf("create %s: %d %s", target, status, text)
	}
	return h.entities[strings.ToLower(strings.TrimPrefix(target, "/"))]
}

// topicElements and subscriptionElements are what answers hold, in the service's order.
var (
	topicElements = strings.Fields(`DefaultMessageTimeToLive MaxSizeInMegabytes
		RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow EnableBatchedOperations
		SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status
		CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount AutoDeleteOnIdle
		EnablePartitioning EntityAvailabilityStatus EnableSubscriptionPartitioning EnableExpress
		UserMetadata MaxMessageSizeInKilobytes SqlFilterCount CorrelationFilterCount`)
	subscriptionElements = strings.Fields(`LockDuration RequiresSession DefaultMessageTimeToLive
		DeadLetteringOnMessageExpiration DeadLetteringOnFilterEvaluationExceptions MessageCount
		MaxDeliveryCount EnableBatchedOperations Status ForwardTo UserMetadata CreatedAt UpdatedAt
		AccessedAt CountDetails ForwardDeadLetteredMessagesTo AutoDeleteOnIdle
		EntityAvailabilityStatus IsClientAffine`)
)

func inOrder(t *testing.T, text string, names []string) {
	t.Helper()
	at := 0
	for _, name := range names {
		next := strings.Index(text[at:], "<"+name)
		if next < 0 {
			t.Fatalf("%s is missing or out of order in %s", name, text)
		}
		at += next
	}
}

func TestTopicsAndSubscriptionsHaveEveryElementInOrder(t *testing.T) {
	h := newHouse(t)
	h.create(t, "target", "")
	h.put(t, "/Trade", "TopicDescription", "<UserMetadata>m</UserMetadata>")
	h.put(t, "/trade/subscriptions/Eu", "SubscriptionDescription", "<UserMetadata>m</UserMetadata>"+
		"<ForwardTo>target</ForwardTo>"+
		"<ForwardDeadLetteredMessagesTo>target</ForwardDeadLetteredMessagesTo>")
	h.counts = fsm.EntityCounts{Active: 3, Scheduled: 2, SizeBytes: 9}
	_, text := h.do(t, "GET", "/trade?api-version=2024-05", "")
	inOrder(t, text, topicElements)
	for name, want := range map[string]string{
		"d2p1:ActiveMessageCount": "0", "d2p1:ScheduledMessageCount": "2", "SubscriptionCount": "1",
		"SqlFilterCount": "1", "CorrelationFilterCount": "0", "SizeInBytes": "9",
	} {
		if got := property(text, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	_, text = h.do(t, "GET", "/TRADE/Subscriptions/EU", "")
	inOrder(t, text, subscriptionElements)
	if got, want := property(text, "AccessedAt"), property(text, "CreatedAt"); got != want {
		t.Errorf("a subscription that nobody used was accessed at %s, want %s", got, want)
	}
	for _, want := range []string{
		"<id>https://host.test/Trade/Subscriptions/Eu</id>", `<title type="text">Eu</title>`,
		"<MessageCount>5</MessageCount>", "<ForwardTo>sb://host.test/target</ForwardTo>",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "<author>") {
		t.Error("a subscription has an author")
	}
}

// The parts of a document that came with a version (1.2). S-348
func TestOlderVersionsGetOlderDocuments(t *testing.T) {
	h := newHouse(t)
	h.create(t, "q", "")
	h.put(t, "/t", "TopicDescription", "")
	h.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	for _, tc := range []struct {
		target, version, element string
		there                    bool
	}{
		{"/q", "2017-04", "MaxMessageSizeInKilobytes", false},
		{"/q", "2021-05", "MaxMessageSizeInKilobytes", true},
		{"/t", "2013-07", "MaxMessageSizeInKilobytes", false},
		{"/t", "2021-05", "SqlFilterCount", false},
		{"/t", "2024-05", "SqlFilterCount", true},
		{"/t", "2024-05", "CorrelationFilterCount", true},
		{"/t", "9999-12", "CorrelationFilterCount", true},
		{"/t", "", "CorrelationFilterCount", true},
		{"/t/Subscriptions/s", "2017-04", "IsClientAffine", false},
		{"/t/Subscriptions/s", "2021-05", "IsClientAffine", true},
	} {
		_, text := h.do(t, "GET", tc.target+"?api-version="+tc.version, "")
		if got := property(text, tc.element) != "absent"; got != tc.there {
			t.Errorf("%s at %q has %s: %t", tc.target, tc.version, tc.element, got)
		}
	}
}

func TestPropertiesOfTopicsAndSubscriptionsAreStoredAndReturned(t *testing.T) {
	for _, tc := range []struct {
		target, element, value, want string
		stored                       func(*fsm.Descriptor) bool
	}{
		{"/t", "DefaultMessageTimeToLive", "PT1S", "", func(d *fsm.Descriptor) bool {
			return d.DefaultTTL == 1000
		}},
		{"/t", "MaxSizeInMegabytes", "2048", "", func(d *fsm.Descriptor) bool {
			return d.MaxSizeBytes == 2048<<20
		}},
		{"/t", "RequiresDuplicateDetection", "true", "", func(d *fsm.Descriptor) bool {
			return d.DetectDuplicates
		}},
		{"/t", "DuplicateDetectionHistoryTimeWindow", "P7D", "", func(d *fsm.Descriptor) bool {
			return d.DuplicateWindow == 7*86_400_000
		}},
		{"/t", "FilteringMessagesBeforePublishing", "true", "", func(d *fsm.Descriptor) bool {
			return d.FilterBeforePublish
		}},
		{"/t", "EnableSubscriptionPartitioning", "true", "", func(d *fsm.Descriptor) bool {
			return d.PartitionSubscriptions
		}},
		{"/t", "EnablePartitioning", "true", "", func(d *fsm.Descriptor) bool {
			return d.Partitioned && d.SupportOrdering && d.MaxSizeMegabytes == 16*1024
		}},
		{"/t", "SupportOrdering", "false", "", func(d *fsm.Descriptor) bool {
			return !d.SupportOrdering
		}},
		{"/t", "Status", "SendDisabled", "", func(d *fsm.Descriptor) bool {
			return d.Status == fsm.SendDisabled
		}},
		{"/t", "UserMetadata", "x", "", func(d *fsm.Descriptor) bool { return d.UserMetadata == "x" }},
		{"/t", "MaxMessageSizeInKilobytes", "2048", "", func(d *fsm.Descriptor) bool {
			return d.MaxMessageBytes == 2<<20
		}},
		{"/t", "AutoDeleteOnIdle", "P427D", "", func(d *fsm.Descriptor) bool {
			return d.AutoDeleteOnIdle == 427*86_400_000
		}},
		{"/base/Subscriptions/s", "LockDuration", "PT5S", "", func(d *fsm.Descriptor) bool {
			return d.LockDuration == 5000 && d.MaxMessageBytes == 1<<20
		}},
		{"/base/Subscriptions/s", "RequiresSession", "true", "", func(d *fsm.Descriptor) bool {
			return d.RequiresSession
		}},
		{
			"/base/Subscriptions/s", "DeadLetteringOnFilterEvaluationExceptions", "false", "",
			func(d *fsm.Descriptor) bool { return !d.DeadLetterOnFilterError },
		},
		{
			"/base/Subscriptions/s", "DeadLetteringOnMessageExpiration", "true", "",
			func(d *fsm.Descriptor) bool { return d.DeadLetterOnExpiration },
		},
		{"/base/Subscriptions/s", "MaxDeliveryCount", "2147483647", "", func(d *fsm.Descriptor) bool {
			return d.MaxDelivery == 1<<31-1
		}},
		{"/base/Subscriptions/s", "ForwardTo", "base2", "sb://host.test/base2",
			func(d *fsm.Descriptor) bool { return d.ForwardTo == "base2" }},
	} {
		t.Run(tc.target+" "+tc.element, func(t *testing.T) {
			h := newHouse(t)
			h.put(t, "/base", "TopicDescription", "")
			h.put(t, "/base2", "TopicDescription", "")
			element := "TopicDescription"
			if strings.Contains(tc.target, "Subscriptions") {
				element = "SubscriptionDescription"
			}
			d := h.put(t, tc.target, element, "<"+tc.element+">"+tc.value+"</"+tc.element+">")
			if !tc.stored(d) {
				t.Errorf("stored as %+v", d)
			}
			want := tc.want
			if want == "" {
				want = tc.value
			}
			if _, text := h.do(t, "GET", tc.target, ""); property(text, tc.element) != want {
				t.Errorf("got %s, want %s", property(text, tc.element), want)
			}
		})
	}
}

// S-1: a subscription or rule that is there already is logged and counted as that, not as a busy service. Frameworks
// create them at each start.
func TestASubscriptionThatExistsIsToldAsThat(t *testing.T) {
	h := ruleHouse(t) // with the topic t and its subscription s
	rule := entryBody("RuleDescription", `<Filter xsi:type="TrueFilter"`+xsi+`/><Name>r</Name>`)
	for _, r := range []struct {
		target, body string
		status       int
	}{
		{"/t/Subscriptions/s", entryBody("SubscriptionDescription", ""), 409},
		{"/t/Subscriptions/s/rules/r", rule, 201}, {"/t/Subscriptions/s/rules/r", rule, 409},
	} {
		if status, text := h.do(t, "PUT", r.target, r.body); status != r.status {
			t.Fatalf("%s: %d %s", r.target, status, text)
		}
	}
	said := h.log.String()
	if n := strings.Count(said, "code=MessagingEntityAlreadyExists"); n != 2 || strings.Contains(said, "code=ServiceBusy") {
		t.Errorf("logged:\n%s", said)
	}
}

// S-210, S-228, S-261 and the rows of 1.11 that are of topics and subscriptions.
func TestRefusalsOfTopicsAndSubscriptions(t *testing.T) {
	el := func(name, value string) string { return "<" + name + ">" + value + "</" + name + ">" }
	const sub, topic = "SubscriptionDescription", "TopicDescription"
	update := []string{"If-Match", "*"}
	for name, tc := range map[string]struct {
		target, element, elements string
		headers                   []string
		status                    int
		want                      string
	}{
		"an existing topic": {"/T", topic, "", nil, 409, "SubCode=40900. Conflict. You're requesting"},
		"a queue of a topic's name": {
			"/t", "QueueDescription", "", nil, 409, "SubCode=40900. Conflict.",
		},
		"an existing subscription": {
			"/t/Subscriptions/s", sub, "", nil, 409,
			"<Detail>The messaging entity 'sample:Topic:t|s' already exists.",
		},
		"an update of no topic": {
			"/x", topic, "", update, 404, "SubCode=40400. Not Found. The Operation doesn't exist.",
		},
		"an update of no subscription": {
			"/t/Subscriptions/x", sub, "", update, 404,
			"<Detail>Entity 'sample:Topic:t|x' was not found.",
		},
		"a subscription of no topic": {
			"/x/Subscriptions/s", sub, "", nil, 404, "Entity 'sample:Topic:x|s' was not found.",
		},
		"a subscription of a queue": {
			"/q/Subscriptions/s", sub, "", nil, 404, "Entity 'sample:Topic:q|s' was not found.",
		},
		"a queue updated as a topic": {"/q", topic, "", update, 400, "'q' is a Queue, not a Topic"},
		"a topic updated as a queue": {
			"/t", "QueueDescription", "", update, 400, "'t' is a Topic, not a Queue",
		},
		"a subscription in a topic's place": {"/y", sub, "", nil, 400, "of a queue or topic"},
		"a topic in a subscription's place": {
			"/t/Subscriptions/y", topic, "", nil, 400, "not the description of a subscription",
		},
		"partitioning of a topic changed": {
			"/t", topic, el("EnablePartitioning", "true"), update, 400,
			"SubCode=40000. Partitioning cannot be changed for Topic.",
		},
		"duplicate detection of a topic changed": {
			"/t", topic, el("RequiresDuplicateDetection", "true"), update, 400,
			"The value for the RequiresDuplicateDetection property of an existing Topic cannot",
		},
		"partitioning of subscriptions changed": {
			"/t", topic, el("EnableSubscriptionPartitioning", "true"), update, 400,
			"property of an existing Topic cannot be changed",
		},
		"sessions of a subscription changed": {
			"/t/Subscriptions/s", sub, el("RequiresSession", "true"), update, 400,
			"SubCode=40000. The value for the RequiresSession property of an existing Subscription " +
				"cannot be changed",
		},
		"a lock of more than five minutes": {
			"/t/Subscriptions/y", sub, el("LockDuration", "P25D"), nil, 400,
			"<Detail>The supplied lock time exceeds the allowed maximum of '5' minutes.&#xD;\n" +
				"Parameter name: LockDuration&#xD;\nActual value was 25.00:00:00",
		},
		"express with duplicates": {
			"/y", topic, el("EnableExpress", "1") + el("RequiresDuplicateDetection", "1"), nil, 400,
			"cannot be combined",
		},
		"sessions with forwarding": {
			"/t/Subscriptions/y", sub, el("RequiresSession", "1") + el("ForwardTo", "q"), nil, 400,
			"cannot be combined",
		},
		"forwarding to nowhere": {
			"/t/Subscriptions/y", sub, el("ForwardTo", "x"), nil, 400,
			"SubCode=40400. The auto forwarding destination entity does not exist.",
		},
		"a client-affine subscription": {
			"/t/Subscriptions/y", sub, el("IsClientAffine", "true"), nil, 400, "not supported",
		},
		"a name of 51 characters": {
			"/t/Subscriptions/" + strings.Repeat("n", 51), sub, "", nil, 400, "the limit is 50",
		},
		"a name with a colon": {
			"/t/Subscriptions/a:b", sub, "", nil, 400, "character(s) that is not allowed by Service Bus",
		},
		"an unknown option": {
			"/t/Subscriptions/y", sub, `<Options xmlns="urn:busbar:entity"><X/></Options>`, nil, 400,
			"option X is unknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.create(t, "q", "")
			h.put(t, "/t", topic, "")
			h.put(t, "/t/Subscriptions/s", sub, "")
			before := len(h.entities)
			status, text := h.do(t, "PUT", tc.target, entryBody(tc.element, tc.elements), tc.headers...)
			if status != tc.status || !strings.Contains(text, tc.want) {
				t.Errorf("got %d %s", status, text)
			}
			if len(h.entities) != before {
				t.Error("something was created")
			}
		})
	}
}

func TestSubscriptionsAreListedAndDeletedWithTheirTopic(t *testing.T) {
	h := newHouse(t)
	h.put(t, "/t", "TopicDescription", "")
	h.put(t, "/other", "TopicDescription", "")
	h.put(t, "/other/Subscriptions/x", "SubscriptionDescription", "")
	for i := range 5 {
		h.put(t, fmt.Sprintf("/t/Subscriptions/s%d", i), "SubscriptionDescription", "")
	}
	// Go sends a stray parameter, Python and Java small letters.
	_, text := h.do(t, "GET", "/T/subscriptions?%24skip=1&%24top=2&%3F=&api-version=2024-05", "")
	for _, want := range []string{
		`<title type="text">Subscriptions</title>`, `<title type="text">s1</title>`,
		`<title type="text">s2</title>`,
		`<link rel="next" href="https://host.test/t/subscriptions?$skip=3&amp;$top=2&amp;api-version=2024-05"/>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if n := strings.Count(text, "<entry"); n != 2 {
		t.Errorf("%d entries", n)
	}
	if _, text = h.do(t, "GET", "/t/Subscriptions/?$skip=5", ""); strings.Contains(text, "<entry") {
		t.Error("past the end is something")
	}
	_, text = h.do(t, "GET", "/$Resources/Topics", "")
	if strings.Count(text, "<entry") != 2 || !strings.Contains(text, "<SubscriptionCount>5<") {
		t.Errorf("topics: %s", text)
	}
	response := h.response(t, "DELETE", "/t/subscriptions/S3", "")
	if response.StatusCode != 200 || response.Header.Get("ETag") == "" ||
		h.entities["t/subscriptions/s3"] != nil {
		t.Errorf("delete: %d %v", response.StatusCode, response.Header)
	}
	if status, text := h.do(t, "DELETE", "/t/subscriptions/s3", ""); status != 404 ||
		!strings.Contains(text, "Entity 'sample:Topic:t|s3' was not found.") {
		t.Errorf("delete again: %d %s", status, text)
	}
	if status, _ := h.do(t, "DELETE", "/t", ""); status != 200 || len(h.entities) != 2 {
		t.Errorf("%d, %d entities are left", status, len(h.entities))
	}
	for _, target := range []string{"/t/subscriptions", "/t/subscriptions/s1/rules"} {
		if status, text := h.do(t, "GET", target, ""); status != 404 {
			t.Errorf("%s of a deleted topic: %d %s", target, status, text)
		}
	}
}

// What the original has no element for is kept by an update that does not name it.
func TestOptionsAreKept(t *testing.T) {
	h := newHouse(t)
	d := h.create(t, "q", `<Options xmlns="urn:busbar:entity"><RetryMin>PT1S</RetryMin>`+
		`<ProcessedHistory>true</ProcessedHistory><HistoryCount>7</HistoryCount></Options>`)
	if d.RetryBackoff.Min != 1000 || !d.ProcessedHistory || d.HistoryCount != 7 {
		t.Fatalf("stored as %+v", d)
	}
	status, text := h.do(t, "PUT", "/q", queueBody(`<o:Options xmlns:o="urn:busbar:entity">`+
		`<o:HistoryCount>8</o:HistoryCount></o:Options>`), "If-Match", "*")
	d = h.entities["q"]
	if status != 200 || d.RetryBackoff.Min != 1000 || !d.ProcessedHistory || d.HistoryCount != 8 {
		t.Errorf("%d %s: %+v", status, text, d)
	}
	const want = `<Options xmlns="urn:busbar:entity"><ProcessedHistory>true</ProcessedHistory>` +
		`<HistoryCount>8</HistoryCount><RetryMin>PT1S</RetryMin></Options></QueueDescription>`
	if _, text := h.do(t, "GET", "/q", ""); !strings.Contains(text, want) {
		t.Errorf("got %s", text)
	}
	for _, bad := range []string{"<RetryMin>P8D</RetryMin>", "<RetryJitterPercent>101</RetryJitterPercent>",
		"<HistoryCount>-1</HistoryCount>", "<NoDeadLetter>maybe</NoDeadLetter>",
		"<RetryMin>PT2S</RetryMin><RetryMax>PT1S</RetryMax>"} {
		status, text := h.do(t, "PUT", "/bad", queueBody(`<Options xmlns="urn:busbar:entity">`+bad+
			`</Options>`))
		if status != 400 {
			t.Errorf("%s: %d %s", bad, status, text)
		}
	}
}

// S-215: the first rule of a subscription.
func TestTheFirstRule(t *testing.T) {
	const given = `<DefaultRuleDescription xmlns:i="` + instanceSpace + `"><Filter i:type="FalseFilter">` +
		`<SqlExpression>1=0</SqlExpression></Filter><Name>none</Name></DefaultRuleDescription>`
	h := newHouse(t)
	h.put(t, "/t", "TopicDescription", "")
	d := h.put(t, "/t/Subscriptions/plain", "SubscriptionDescription", "")
	if len(d.Rules) != 1 || d.Rules[0].Name != "$Default" || d.Rules[0].Source.Kind != rule.TrueFilter {
		t.Errorf("got %+v", d.Rules)
	}
	d = h.put(t, "/t/Subscriptions/given", "SubscriptionDescription", given)
	if len(d.Rules) != 1 || d.Rules[0].Name != "none" || d.Rules[0].Source.Kind != rule.FalseFilter {
		t.Errorf("got %+v", d.Rules)
	}
	if _, text := h.do(t, "GET", "/t/Subscriptions/given", ""); strings.Contains(text, "DefaultRule") {
		t.Error("the first rule is returned with the subscription")
	}
	status, text := h.do(t, "PUT", "/t/Subscriptions/bad", entryBody("SubscriptionDescription",
		strings.Replace(given, ">none<", ">a/b<", 1)))
	if status != 400 || !strings.Contains(text, "not allowed by Service Bus") {
		t.Errorf("a bad name: %d %s", status, text)
	}
	status, text = h.do(t, "PUT", "/t/Subscriptions/bad", entryBody("SubscriptionDescription",
		strings.Replace(given, "FalseFilter", "WiseFilter", 1)))
	if status != 400 || !strings.Contains(text, "type of the filter is unknown") {
		t.Errorf("a bad filter: %d %s", status, text)
	}
}
