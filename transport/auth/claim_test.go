package auth

import (
	"testing"
)

func TestClaimAllows(t *testing.T) {
	namespace := Claim{Rights: All}
	queue := Claim{Audience: "q", Rights: All}
	entity := Claim{Scope: "q", Audience: "q", Rights: All}
	node := Claim{Audience: "q/$management", Rights: Listen}
	list := Claim{Audience: "$resources/queues", Rights: All}
	for _, tc := range []struct {
		fact  string
		claim Claim
		path  string
		right Right
		want  bool
	}{
		{"the namespace opens all", namespace, "any/thing", Manage, true},
		{"the namespace opens itself", namespace, "", Manage, true},
		{"an entity opens itself", queue, "q", Send, true},
		{"names have no case", queue, "Q", Send, true},
		{"a URL is its path", queue, "amqps://host:5671/Q?x=/r#y", Send, true},
		{"a URL's path is decoded", queue, "sb://host/%71", Send, true},
		{"slashes around do not count", queue, "//q/", Send, true},
		{"an entity opens its management node", queue, "q/$management", Listen, true},
		{"an entity opens its dead letters", queue, "q/$DeadLetterQueue", Listen, true},
		{"a topic opens its subscriptions", queue, "q/Subscriptions/s", Listen, true},
		{"a topic's policy does, too", entity, "q/subscriptions/s/Rules/r", Listen, true},
		{"a topic's policy opens the list", entity, "q/Subscriptions", Manage, true},
		{"an entity's policy opens its nodes", entity, "q/$Transfer/$DeadLetterQueue", Listen, true},
		{"a prefix of a segment is nothing", queue, "qq", Send, false},
		{"an audience opens names below it", queue, "q/r", Send, true},
		{"an entity's policy does not", entity, "q/r", Send, false},
		{"nor a word like subscriptions", entity, "q/subscriptionsx", Send, false},
		{"a node does not open its entity", node, "q", Listen, false},
		{"a node opens itself", node, "q/$management", Listen, true},
		{"an entity does not open the namespace", queue, "", Manage, false},
		{"an entity does not open the list", queue, "$Resources/Queues", Manage, false},
		{"a list opens itself", list, "$Resources/Queues", Manage, true},
		{"a list opens no entity", list, "q", Manage, false},
		{"a missing right", node, "q/$management", Send, false},
		{"one right of two", node, "q/$management", Listen | Send, false},
		{"no right asked for", namespace, "q", 0, false},
		{"the zero claim", Claim{}, "", Listen, false},
		{"Unicode is not folded", Claim{Audience: "k", Rights: All}, "\u212a", Listen, false},
	} {
		t.Run(tc.fact, func(t *testing.T) {
			if got := tc.claim.Allows(tc.path, tc.right); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if !node.AllowsAny("q/$management", Listen|Send) || node.AllowsAny("q/$management", Send) ||
		node.AllowsAny("q", Listen) {
		t.Error("AllowsAny wants one of the rights and the path")
	}
}

func TestAudiencePath(t *testing.T) {
	for sr, want := range map[string]string{
		"https://host/": "",
		"https://host:5300/q1?api-version=2024-05": "q1",
		"sb://host/A/b":                             "a/b",
		"amqp://host:5672/q/$management":            "q/$management",
		"localhost:5300":                            "",
		"localhost":                                 "",
		"host/q":                                    "q",
		"https://host/txt%2F.-_123":                 "txt/.-_123",
		"https://host//q//":                         "q",
		"https://host/$resources/queues?%24top=1":   "$resources/queues",
		"https://host/t/Subscriptions/s?x=http://y": "t/subscriptions/s",
		"host/q?x=http://y/z":                       "q",
	} {
		if got, err := audiencePath(sr); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", sr, got, err, want)
		}
	}
}
