package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// What later decides outcomes arrives as it was asked for.
func TestPropertiesAreStoredAndReturned(t *testing.T) {
	for name, tc := range map[string]struct {
		element, value, want string // want "" is the value itself
		stored               func(*fsm.Descriptor) bool
	}{
		"lock": {"LockDuration", "PT5M", "", func(d *fsm.Descriptor) bool {
			return d.LockDuration == 300_000
		}},
		"seconds": {"LockDuration", "PT90S", "PT1M30S", func(d *fsm.Descriptor) bool {
			return d.LockDuration == 90_000
		}},
		"size": {"MaxSizeInMegabytes", "5120", "", func(d *fsm.Descriptor) bool {
			return d.MaxSizeBytes == 5120<<20 && d.MaxSizeMegabytes == 5120
		}},
		"duplicates": {"RequiresDuplicateDetection", "true", "", func(d *fsm.Descriptor) bool {
			return d.DetectDuplicates
		}},
		"sessions": {"RequiresSession", "True", "true", func(d *fsm.Descriptor) bool {
			return d.RequiresSession
		}},
		"ttl": {"DefaultMessageTimeToLive", "PT1S", "", func(d *fsm.Descriptor) bool {
			return d.DefaultTTL == 1000
		}},
		"no ttl": {"DefaultMessageTimeToLive", infinite, "", func(d *fsm.Descriptor) bool {
			return d.DefaultTTL == fsm.Unlimited
		}},
		"expired": {"DeadLetteringOnMessageExpiration", "1", "true", func(d *fsm.Descriptor) bool {
			return d.DeadLetterOnExpiration
		}},
		"window": {"DuplicateDetectionHistoryTimeWindow", "PT20S", "", func(d *fsm.Descriptor) bool {
			return d.DuplicateWindow == 20_000
		}},
		"deliveries": {"MaxDeliveryCount", "2147483647", "", func(d *fsm.Descriptor) bool {
			return d.MaxDelivery == 1<<31-1
		}},
		"batches": {"EnableBatchedOperations", "false", "", func(d *fsm.Descriptor) bool {
			return !d.EnableBatched
		}},
		"disabled": {"Status", "Disabled", "", func(d *fsm.Descriptor) bool {
			return d.Status == fsm.Disabled
		}},
		"no sends": {"Status", "SendDisabled", "", func(d *fsm.Descriptor) bool {
			return d.Status == fsm.SendDisabled
		}},
		"no takes": {"Status", "receivedisabled", "ReceiveDisabled", func(d *fsm.Descriptor) bool {
			return d.Status == fsm.ReceiveDisabled
		}},
		"metadata": {"UserMetadata", " a&lt;b ", "", func(d *fsm.Descriptor) bool {
			return d.UserMetadata == " a<b "
		}},
		"ordering": {"SupportOrdering", "false", "", func(d *fsm.Descriptor) bool {
			return !d.SupportOrdering
		}},
		"idle": {"AutoDeleteOnIdle", "PT5M", "", func(d *fsm.Descriptor) bool {
			return d.AutoDeleteOnIdle == 300_000
		}},
		"partitions": {"EnablePartitioning", "true", "", func(d *fsm.Descriptor) bool {
			return d.Partitioned && !d.SupportOrdering && d.MaxSizeMegabytes == 16*1024
		}},
		"express": {"EnableExpress", "true", "", func(d *fsm.Descriptor) bool { return d.EnableExpress }},
		"forward": {"ForwardTo", "target", "sb://host.test/target", func(d *fsm.Descriptor) bool {
			return d.ForwardTo == "target"
		}},
		"forward by URL": {"ForwardTo", "sb://elsewhere/TARGET", "", func(d *fsm.Descriptor) bool {
			return d.ForwardTo == "sb://elsewhere/TARGET"
		}},
		"forward by URL in capitals": {"ForwardTo", "SB://ELSEWHERE:1/TARGET", "sb://elsewhere:1/TARGET", func(d *fsm.Descriptor) bool {
			return strings.HasSuffix(d.ForwardTo, "/TARGET")
		}}, // E7: scheme and host come back in lower case, the name in the letters sent
		"dead letters": {
			"ForwardDeadLetteredMessagesTo", "target", "sb://host.test/target",
			func(d *fsm.Descriptor) bool { return d.ForwardDeadLettersTo == "target" },
		},
		"message size": {"MaxMessageSizeInKilobytes", "102400", "", func(d *fsm.Descriptor) bool {
			return d.MaxMessageKilobytes == 102400 && d.MaxMessageBytes == 100<<20
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.create(t, "target", "")
			d := h.create(t, "q", "<"+tc.element+">"+tc.value+"</"+tc.element+">")
			if !tc.stored(d) {
				t.Errorf("stored as %+v", d)
			}
			want := tc.want
			if want == "" {
				want = tc.value
			}
			if _, text := h.do(t, "GET", "/q", ""); property(text, tc.element) != want {
				t.Errorf("got %s, want %s", property(text, tc.element), want)
			}
		})
	}
}

func TestDefaultsOfANewQueue(t *testing.T) {
	h := newHouse(t)
	d := h.create(t, "Q.1-a_b/c", "")
	want := fsm.Descriptor{
		ID: 1, Version: 1, Kind: fsm.Queue, Name: "Q.1-a_b/c", Partitions: []fsm.PartitionID{1},
		LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30,
		MaxSizeMegabytes: 1024, DefaultTTL: fsm.Unlimited, DuplicateWindow: 600_000,
		AutoDeleteOnIdle: fsm.Unlimited, EnableBatched: true, SupportOrdering: true,
		CreatedAt: fsm.Wall(now.UnixMilli()), UpdatedAt: fsm.Wall(now.UnixMilli()),
	}
	if got, want := fmt.Sprintf("%+v", *d), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBadPropertiesAreRefused(t *testing.T) {
	el := func(name, value string) string { return "<" + name + ">" + value + "</" + name + ">" }
	rule := func(inner string) string {
		return el("AuthorizationRules", el("AuthorizationRule", inner))
	}
	rights := func(names ...string) string {
		return el("Rights", el("AccessRights", strings.Join(names, "</AccessRights><AccessRights>")))
	}
	for name, tc := range map[string]struct{ elements, want string }{
		// S-157
		"a lock of more than five minutes": {
			el("LockDuration", "PT6M"),
			"SubCode=40000. The supplied lock time exceeds the allowed maximum of '5' minutes.&#xD;\n" +
				"Parameter name: LockDuration&#xD;\nActual value was 00:06:00.",
		},
		"a lock of one second": {el("LockDuration", "PT1S"), "between 00:00:05 and 00:05:00."},
		"a lock that is no duration": {
			el("LockDuration", "1 minute"), "not a duration of ISO 8601",
		},
		"a lock beyond every duration": {
			el("LockDuration", "P99999999D"), "not a duration of ISO 8601",
		},
		"a size of no gigabytes": {
			el("MaxSizeInMegabytes", "1000"), "1024;2048;3072;4096;5120",
		},
		"a size beyond the largest": {el("MaxSizeInMegabytes", "81921"), "from 1 to 81920"},
		"a size of nothing":         {el("MaxSizeInMegabytes", "0"), "from 1 to 81920"},
		"a negative size":           {el("MaxSizeInMegabytes", "-1024"), "from 1 to 81920"},
		"a size of 65 bits": {
			el("MaxSizeInMegabytes", "18446744073709551616"), "from 1 to",
		},
		"no delivery": {el("MaxDeliveryCount", "0"), "from 1 to 2147483647"},
		"deliveries beyond 31 bits": {
			el("MaxDeliveryCount", "2147483648"), "from 1 to 2147483647",
		},
		"deliveries in words":    {el("MaxDeliveryCount", "ten"), "Actual value was ten."},
		"a ttl of half a second": {el("DefaultMessageTimeToLive", "PT0.5S"), "between 00:00:01 and 10675199.02:48:05.4775807."},
		"a window of ten seconds": {
			el("DuplicateDetectionHistoryTimeWindow", "PT10S"), "between 00:00:20 and 7.00:00:00.",
		},
		"a window of eight days": {
			el("DuplicateDetectionHistoryTimeWindow", "P8D"), "between 00:00:20 and 7.00:00:00.",
		},
		// S-257, T-216
		"idle for four minutes":          {el("AutoDeleteOnIdle", "PT4M"), "between 00:05:00 and"},
		"a status that is reported only": {el("Status", "Creating"), "not a status that can be set"},
		"a flag that is neither":         {el("RequiresSession", "yes"), "neither true nor false"},
		"metadata beyond 1024": {
			el("UserMetadata", strings.Repeat("ä", 1025)), "1025 characters long",
		},
		"a message size of 101 MiB": {el("MaxMessageSizeInKilobytes", "102401"), "from 1 to 102400"},
		"a message size of nothing": {el("MaxMessageSizeInKilobytes", "0"), "from 1 to 102400"},
		"express with duplicates": {
			el("EnableExpress", "true") + el("RequiresDuplicateDetection", "true"), "cannot be combined",
		},
		"sessions with forwarding": {
			el("RequiresSession", "true") + el("ForwardTo", "target"), "cannot be combined",
		},
		"forwarding to nowhere": {
			el("ForwardTo", "x"), "SubCode=40400. The auto forwarding destination entity does not exist.",
		},
		"dead letters to nowhere": {
			el("ForwardDeadLetteredMessagesTo", "x"), "SubCode=40400. The auto",
		},
		"forwarding to no name":    {el("ForwardTo", "a?b//c d"), "no name of an entity"},
		"forwarding to a bad name": {el("ForwardTo", "a b"), "no name of an entity"},
		"a property twice": {
			el("LockDuration", "PT1M") + el("LockDuration", "PT2M"), "given twice",
		},
		"thirteen rules": {
			el("AuthorizationRules", strings.Repeat("<AuthorizationRule/>", 13)), "at most 12",
		},
		"a rule without a name": {rule(rights("Send")), "policy name"},
		"a rule without rights": {rule(el("KeyName", "n")), "no right"},
		"a rule with an unknown right": {
			rule(el("KeyName", "n") + rights("Own")), "unknown or given twice",
		},
		"a rule with a right twice": {
			rule(el("KeyName", "n") + rights("Send", "Send")), "unknown or given twice",
		},
		"a rule with Manage alone": {rule(el("KeyName", "n") + rights("Manage")), "Manage without"},
		"a rule with a bad name": {
			rule(el("KeyName", "a/b") + rights("Send")), "URL must escape",
		},
		"a rule with a key too long": {
			rule(el("KeyName", "n") + rights("Send") + el("PrimaryKey", strings.Repeat("k", 257))),
			"more than 256",
		},
		"something among the rules": {
			el("AuthorizationRules", "<Rule/>"), "not an authorization rule",
		},
		"two rules of one name": {
			el("AuthorizationRules", strings.Repeat(
				el("AuthorizationRule", el("KeyName", "n")+rights("Send")), 2)),
			"given twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.create(t, "target", "")
			status, text := h.do(t, "PUT", "/q", queueBody(tc.elements))
			if status != http.StatusBadRequest || !strings.Contains(text, tc.want) {
				t.Errorf("got %d %s", status, text)
			}
			if h.entities["q"] != nil {
				t.Error("the queue was created")
			}
		})
	}
}

// S-261, S-262: what never changes, what takes its default when absent and what is kept.
func TestUpdate(t *testing.T) {
	const key = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB="
	const rules = "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights>" +
		"</Rights><KeyName>app</KeyName><PrimaryKey>" + key + "</PrimaryKey></AuthorizationRule>" +
		"</AuthorizationRules>"
	const before = "<RequiresSession>true</RequiresSession><MaxDeliveryCount>3</MaxDeliveryCount>" +
		"<RequiresDuplicateDetection>true</RequiresDuplicateDetection>" +
		"<DefaultMessageTimeToLive>PT1H</DefaultMessageTimeToLive><UserMetadata>m</UserMetadata>" +
		"<EnablePartitioning>true</EnablePartitioning><MaxSizeInMegabytes>2048</MaxSizeInMegabytes>" +
		"<ForwardDeadLetteredMessagesTo>target</ForwardDeadLetteredMessagesTo>" + rules
	for name, tc := range map[string]struct {
		elements, refusal string
		holds             func(*fsm.Descriptor) bool
	}{
		"absent mutable properties take their defaults": {"", "", func(d *fsm.Descriptor) bool {
			return d.MaxDelivery == 10 && d.DefaultTTL == fsm.Unlimited
		}},
		"absent texts are cleared": {"", "", func(d *fsm.Descriptor) bool {
			return d.UserMetadata == "" && d.ForwardDeadLettersTo == ""
		}},
		"absent immutable properties stay": {"", "", func(d *fsm.Descriptor) bool {
			return d.RequiresSession && d.DetectDuplicates && d.Partitioned && d.MaxSizeMegabytes == 32768
		}},
		"absent rules stay": {"", "", func(d *fsm.Descriptor) bool {
			return len(d.AuthRules) == 1 && d.AuthRules[0].PrimaryKey == key
		}},
		"an empty list clears the rules": {"<AuthorizationRules/>", "", func(d *fsm.Descriptor) bool {
			return len(d.AuthRules) == 0
		}},
		"a rule without keys keeps those it had": {
			strings.Replace(rules, "<PrimaryKey>"+key+"</PrimaryKey>", "", 1), "",
			func(d *fsm.Descriptor) bool { return d.AuthRules[0].PrimaryKey == key },
		},
		"a null is as good as absent": {
			`<MaxDeliveryCount i:nil="true" xmlns:i="` + instanceSpace + `">5</MaxDeliveryCount>`, "",
			func(d *fsm.Descriptor) bool { return d.MaxDelivery == 10 },
		},
		"read-only and unknown elements are ignored": {
			"<SizeInBytes>x</SizeInBytes><CreatedAt>x</CreatedAt><Unknown><Deep/></Unknown>" +
				`<o:MaxDeliveryCount xmlns:o="other">5</o:MaxDeliveryCount>`, "",
			func(d *fsm.Descriptor) bool { return d.MaxDelivery == 10 && d.CreatedAt != 0 },
		},
		"the size it reports is its own": {"<MaxSizeInMegabytes>32768</MaxSizeInMegabytes>", "",
			func(d *fsm.Descriptor) bool { return d.MaxSizeMegabytes == 32768 }},
		"the size asked for is its own": {"<MaxSizeInMegabytes>2048</MaxSizeInMegabytes>", "",
			func(d *fsm.Descriptor) bool { return d.MaxSizeMegabytes == 32768 }},
		"the name keeps its spelling, the entity its id": {"", "", func(d *fsm.Descriptor) bool {
			return d.Name == "Orders" && d.ID == 2 && d.Partitions[0] == 1
		}},
		"sessions never change": {"<RequiresSession>false</RequiresSession>",
			"SubCode=40000. The value for the RequiresSession property of an existing Queue " +
				"cannot be changed", nil},
		"duplicate detection never changes": {
			"<RequiresDuplicateDetection>false</RequiresDuplicateDetection>",
			"RequiresDuplicateDetection property of an existing Queue cannot be changed", nil,
		},
		"partitioning never changes": {"<EnablePartitioning>false</EnablePartitioning>",
			"Partitioning cannot be changed for Queue.", nil},
		"a partitioned size never changes": {"<MaxSizeInMegabytes>4096</MaxSizeInMegabytes>",
			"MaxSizeInMegabytes property of an existing Queue cannot be changed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.create(t, "target", "")
			h.create(t, "Orders", before)
			status, text := h.do(t, "PUT", "/orders", queueBody(tc.elements), "If-Match", "*")
			if tc.refusal != "" {
				if status != http.StatusBadRequest || !strings.Contains(text, tc.refusal) {
					t.Errorf("got %d %s", status, text)
				}
				return
			}
			if status != http.StatusOK || !tc.holds(h.entities["orders"]) {
				t.Errorf("got %d %s, stored %+v", status, text, h.entities["orders"])
			}
			if !strings.Contains(text, `<title type="text">Orders</title>`) {
				t.Errorf("the title is not the name as created: %s", text)
			}
		})
	}
}

// S-260, T-218: names compare without case and keep their spelling.
func TestNames(t *testing.T) {
	h := newHouse(t)
	h.create(t, "Orders", "")
	status, text := h.do(t, "PUT", "/oRDERS", queueBody(""))
	if status != http.StatusConflict || !strings.Contains(text, "SubCode=40900. Conflict. "+
		"You're requesting an operation that isn't allowed in the resource's current state.") {
		t.Errorf("got %d %s", status, text)
	}
	if status, text = h.do(t, "GET", "/ORDERS/", ""); status != http.StatusOK ||
		!strings.Contains(text, `<id>https://host.test/Orders</id>`) {
		t.Errorf("got %d %s", status, text)
	}
	if status, text = h.do(t, "DELETE", "/ORDERS", ""); status != http.StatusOK || text != "" {
		t.Errorf("got %d %s", status, text)
	}
	if status, text = h.do(t, "DELETE", "/ORDERS", ""); status != http.StatusNotFound ||
		!strings.Contains(text, "No service is hosted at the specified address.") {
		t.Errorf("got %d %s", status, text)
	}
	for _, name := range []string{"a", "0", "a.b-c_d", "a/b/c", "A/_", "txt%2F.-_123",
		strings.Repeat("n", 260), "subscriptions", "a.b/..c"} {
		h.create(t, name, "")
	}
	for _, name := range []string{"a%20b", "%C3%A4", "a//b", "a/./b", "a/../b", "..", "a@b", "a%3Fb",
		"a%23b", "a*b", "a%5Cb", "a:b", "//a", "a//", "a$b", "a%00b", strings.Repeat("n", 261)} {
		status, text := h.do(t, "PUT", "/"+name, queueBody(""))
		if status != http.StatusBadRequest || (len(name) < 260 && !strings.Contains(text,
			"contains character(s) that is not allowed by Service Bus")) {
			t.Errorf("%s: got %d %s", name, status, text)
		}
		if status, text := h.do(t, "GET", "/"+name, ""); status != http.StatusOK ||
			!strings.Contains(text, "Publicly Listed Services") {
			t.Errorf("GET %s: got %d %s", name, status, text)
		}
	}
}

func TestWhatIsMissing(t *testing.T) {
	h := newHouse(t)
	for _, target := range []string{"/", "/missing", "/a/b", "/missing?api-version=2017-04"} {
		status, text := h.do(t, "GET", target, "")
		if status != http.StatusOK || strings.Contains(text, "<entry") ||
			!strings.Contains(text, `<feed xmlns="http://www.w3.org/2005/Atom">`+
				`<title type="text">Publicly Listed Services</title>`) {
			t.Errorf("GET %s: %d %s", target, status, text)
		}
	}
	status, text := h.do(t, "PUT", "/missing", queueBody(""), "If-Match", "*")
	if status != http.StatusNotFound ||
		!strings.Contains(text, "SubCode=40400. Not Found. The Operation doesn't exist.") {
		t.Errorf("update: %d %s", status, text)
	}
	for target, want := range map[string]int{
		"/$Resources/eventhubs": 404, "/$management": 404, "/$Resources": 404, "/$DeadLetterQueue": 404,
		"/t/subscriptions/s/x/r": 404, "/t/subscriptions/s/rules/r/x": 404,
	} {
		if status, text := h.do(t, "GET", target, ""); status != want {
			t.Errorf("GET %s: %d %s", target, status, text)
		}
	}
}

// Nothing is below a topic as long as there are no topics: SDKs read 404 as "does not exist".
func TestBelowTopics(t *testing.T) {
	h := newHouse(t)
	h.create(t, "q", "")
	for target, want := range map[string]string{
		"/t/subscriptions":                         "sample:Topic:t",
		"/t/Subscriptions/":                        "sample:Topic:t",
		"/t/SUBSCRIPTIONS/s":                       "sample:Topic:t|s",
		"/t/subscriptions/s/rules":                 "sample:Topic:t|s",
		"/a/t/subscriptions/s/Rules/":              "sample:Topic:a/t|s",
		"/t%2Fsubscriptions%2Fs/rules/":            "sample:Topic:t|s",
		"/t/subscriptions/s/rules/r":               "sample:Topic:t|s|r",
		"/q/subscriptions/s":                       "sample:Topic:q|s",
		"/a/subscriptions/b/rules/subscriptions/s": "sample:Topic:a/subscriptions/b/rules|s",
		"/t%20/subscriptions/s":                    "sample:Topic:t |s",
	} {
		for _, request := range [][]string{{"GET"}, {"DELETE"}, {"PUT", "If-Match", "*"}} {
			status, text := h.do(t, request[0], target, queueBody(""), request[1:]...)
			if status != 404 || !strings.Contains(text, "Entity '"+want+"' was not found.") {
				t.Errorf("%s %s: %d %s", request[0], target, status, text)
			}
		}
		if status, text := h.do(t, "PUT", target, queueBody("")); status != 404 {
			t.Errorf("PUT %s: %d %s", target, status, text)
		}
		if status, text := h.do(t, "PATCH", target, ""); status != 405 {
			t.Errorf("PATCH %s: %d %s", target, status, text)
		}
	}
	h.failure = fsm.ErrUnavailable
	if status, _ := h.do(t, "GET", "/t/subscriptions/s", ""); status != 503 {
		t.Errorf("got %d", status)
	}
}

// The keys of a queue's rules open that queue once they are given to the set of policies.
func TestPoliciesOfAQueueOpenIt(t *testing.T) {
	h := newHouse(t)
	d := h.create(t, "Billing", "<AuthorizationRules><AuthorizationRule><KeyName>own</KeyName>"+
		"<Rights>"+
		"<AccessRights>Manage</AccessRights><AccessRights>Send</AccessRights><AccessRights>Listen"+
		"</AccessRights></Rights></AuthorizationRule></AuthorizationRules>")
	if err := h.api.deps.Policies.Replace(d.Name, PoliciesOf(d)...); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{d.AuthRules[0].PrimaryKey, d.AuthRules[0].SecondaryKey} {
		own := token("own", key, "https://host.test/billing")
		if status, text := h.do(t, "GET", "/billing", "", "Authorization", own); status != 200 ||
			!strings.Contains(text, "<entry") {
			t.Errorf("got %d %s", status, text)
		}
		if status, _ := h.do(t, "PUT", "/other", queueBody(""), "Authorization", own); status != 401 {
			t.Errorf("it opens another queue: %d", status)
		}
	}
}

// T-209 // S-228: a path has at most 260 characters, the name of a subscription or rule at most 50.
func TestT209NamesHaveLimits(t *testing.T) {
	h := newHouse(t)
	h.put(t, "/t", "TopicDescription", "")
	name := func(n int) string { return strings.Repeat("n", n) }
	for _, one := range []struct {
		path, element string
		status        int
		text          string
	}{
		{name(260), "QueueDescription", 201, ""},
		{name(261), "QueueDescription", 400, "261 characters long, the limit is 260"},
		{"a/" + name(258), "TopicDescription", 201, ""},
		{"a/" + name(259), "TopicDescription", 400, "261 characters long, the limit is 260"},
		{"t/Subscriptions/" + name(50), "SubscriptionDescription", 201, ""},
		{"t/Subscriptions/" + name(51), "SubscriptionDescription", 400, "51 characters long, the limit is 50"},
		{"t/Subscriptions/" + name(50) + "/Rules/" + name(50), "RuleDescription", 201, ""},
		{"t/Subscriptions/" + name(50) + "/Rules/" + name(51), "RuleDescription", 400, "51 characters long, the limit is 50"},
	} {
		status, text := h.do(t, "PUT", "/"+one.path, entryBody(one.element, ""))
		if status != one.status || !strings.Contains(text, one.text) {
			t.Errorf("%s: %d %s, want %d %s", one.path, status, text, one.status, one.text)
		}
	}
}
