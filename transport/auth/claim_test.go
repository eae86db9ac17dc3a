package auth

import (
	"errors"
	"testing"
	"time"
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
	p := newPolicies(t)
	p.KnowHosts("Busbar", "")
	for sr, want := range map[string]string{
		"https://host/": "",
		"https://host:5300/q1?api-version=2024-05": "q1",
		"sb://host/A/b":                  "a/b",
		"amqp://host:5672/q/$management": "q/$management",
		"localhost:5300":                 "",
		"localhost":                      "",
		"LOCALHOST/q":                    "q",
		"busbar":                         "",
		"busbar/q":                       "q",
		"host:5672/q":                    "q",
		"host.example/q":                 "q",
		"[::1]:5672":                     "",
		"https://host/txt%2F.-_123":      "txt/.-_123",
		"https://host//q//":              "q",
		"https://host/$resources/queues?%24top=1":   "$resources/queues",
		"https://host/t/Subscriptions/s?x=http://y": "t/subscriptions/s",
		"host:1/q?x=http://y/z":                     "q",
		// F5: text that names no host opens the entity of that name, as the Go SDK's tokens for a forward ask for.
		"orders":                 "orders",
		"Orders/Subscriptions/s": "orders/subscriptions/s",
		"/orders":                "orders",
	} {
		if got, err := p.audiencePath(sr); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", sr, got, err, want)
		}
	}
	// F5: what is encoded once more than any client does opens nothing.
	for _, sr := range []string{
		"sb%3A%2F%2Flocalhost%2Forders", "sb%3A%2F%2Fns.example%2Forders", "sb://localhost/orders%252Fa",
		"sb%3A//localhost/orders", "localhost/%25", "sb://%6cocalhost/orders", "orders%2561",
	} {
		if got, err := p.audiencePath(sr); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %q, %v, want a malformed token", sr, got, err)
		}
	}
}

// F5: the signer of a token for one entity cannot open another one by the way the audience is written.
func TestAnAudienceThatIsNoAddressOpensNothingElse(t *testing.T) {
	p := newPolicies(t)
	for _, audience := range []string{"orders", "sb%3A%2F%2Flocalhost%2Forders", "sb%253A%252F%252Flocalhost%252Forders",
		"/", "//", "sb://", "sb:///", "://localhost/", "://", "?", "/#"} {
		claim, err := p.Verify(NewToken(audience, root, rootKey, time.Now().Add(time.Hour)), time.Now())
		if err != nil {
			continue
		}
		for _, path := range []string{"", "orders2", "other", "orders2/subscriptions/s"} {
			if claim.Allows(path, Listen) {
				t.Errorf("a token for %s opens %q", audience, path)
			}
		}
	}
}

// F8: a claim stands as long as its policies have its key and its rights.
func TestAClaimStandsWithItsPolicy(t *testing.T) {
	p := newPolicies(t)
	both := Policy{Name: "both", Primary: "same", Rights: Send}
	for _, scope := range []string{"a", "b"} {
		if err := p.Replace(scope, both); err != nil {
			t.Fatal(err)
		}
	}
	claim, err := p.VerifyPlain("both", "same")
	if err != nil || !claim.Allows("a", Send) || !claim.Allows("b", Send) || claim.Allows("c", Send) || claim.Allows("", Send) {
		t.Fatalf("got %+v, %v", claim, err) // F8: by the order of a map it opened the one or the other
	}
	version := p.Version()
	for _, step := range []struct {
		name string
		now  Policy
		want bool
	}{
		{"a second key", Policy{Name: "both", Primary: "same", Secondary: "other", Rights: Send}, true},
		{"the keys change places", Policy{Name: "both", Primary: "other", Secondary: "same", Rights: Send}, true},
		{"more rights", Policy{Name: "both", Primary: "same", Rights: Send | Listen}, true},
		{"other rights", Policy{Name: "both", Primary: "same", Rights: Listen}, false},
		{"another key", Policy{Name: "both", Primary: "other", Rights: Send}, false},
		{"another name", Policy{Name: "neither", Primary: "same", Rights: Send}, false},
	} {
		if err := p.Replace("b", step.now); err != nil {
			t.Fatal(err)
		}
		if got := p.Stands(claim); got != step.want {
			t.Errorf("%s: stands %t", step.name, got)
		}
		if p.Version() == version {
			t.Errorf("%s: the version stayed", step.name)
		}
		version = p.Version()
	}
	if !p.Stands(Claim{Rights: All}) {
		t.Error("a claim without a key is one of a JSON web token, and stands")
	}
}

// A claim tells of the entities that it opens besides its scope.
func TestClaimTellsOfItsEntities(t *testing.T) {
	got := map[string]Right{}
	c := Claim{Rights: Listen, granted: &[]granted{{"orders", Send}, {"bills", All}}}
	c.Entities(func(path string, rights Right) { got[path] = rights })
	if len(got) != 2 || got["orders"] != Send || got["bills"] != All {
		t.Errorf("%v", got)
	}
	Claim{Rights: All}.Entities(func(path string, _ Right) { t.Errorf("a claim without grants tells of %q", path) })
}
