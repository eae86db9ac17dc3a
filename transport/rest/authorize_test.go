package rest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// What each operation answers to each kind of caller, on an entity that exists (3.3). 401 is the
// service's answer to too few rights as well.
func TestAuthorization(t *testing.T) {
	url := func(path string) string { return "https://host.test" + path }
	callers := map[string]func(path string) string{
		"root":         func(string) string { return token(root, rootKey, url("/")) },
		"root, exact":  func(p string) string { return token(root, rootKey, url(p)) },
		"root, host":   func(string) string { return token(root, rootKey, "host.test:5300") },
		"root, other":  func(string) string { return token(root, rootKey, url("/other")) },
		"root, part":   func(string) string { return token(root, rootKey, url("/order")) },
		"sender":       func(p string) string { return token("sender", "k", url(p)) },
		"listener":     func(p string) string { return token("listener", "k", url(p)) },
		"owner":        func(string) string { return token("owner", "k", url("/orders")) },
		"owner, lower": func(string) string { return token("owner", "k", url("/orders/$management")) },
		"reader":       func(string) string { return token("reader", "k", url("/orders")) },
		"wrong key":    func(p string) string { return token(root, "x", url(p)) },
		"nobody":       func(string) string { return "" },
	}
	none := map[string]int{"nobody": 401, "wrong key": 401}
	operations := []struct {
		name, method, target string
		headers              []string
		allowed              string // callers, besides those that none refuses
		text                 string // of a refusal for too few rights
	}{
		{"get", "GET", "/orders?api-version=2024-05", nil,
			"root|root, exact|root, host|owner", claimsForRead},
		{"get in other letters", "GET", "/ORDERS", nil,
			"root|root, exact|root, host|owner", claimsForRead},
		{"update", "PUT", "/orders", []string{"If-Match", "*"},
			"root|root, exact|root, host|owner", claimsForWrite},
		{"create", "PUT", "/new", nil, "root|root, exact|root, host", claimsForWrite},
		{"create below an entity", "PUT", "/orders/new", nil,
			"root|root, exact|root, host", claimsForWrite},
		{"delete", "DELETE", "/orders", nil, "root|root, exact|root, host|owner", claimsToDelete},
		{"list queues", "GET", "/$Resources/Queues?%24top=1", nil,
			"root|root, exact|root, host", claimsForRead},
		{"list topics", "GET", "/$Resources/topics", nil,
			"root|root, exact|root, host", claimsForRead},
		{"namespace", "GET", "/$namespaceinfo", nil,
			"root|root, exact|root, host|sender|listener", claimsForRead},
		// What does not exist is public among those who hold any key.
		{"get what is missing", "GET", "/missing", nil, "root|root, exact|root, host|root, other|" +
			"root, part|sender|listener|owner|owner, lower|reader", ""},
	}
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			for caller, made := range callers {
				h := newHouse(t)
				h.create(t, "orders", "")
				signed := made(op.target)
				if caller == "owner" || caller == "reader" || caller == "owner, lower" {
					signed = made("")
				}
				headers := append([]string{"Authorization", signed}, op.headers...)
				status, text := h.do(t, op.method, op.target, queueBody(""), headers...)
				want := http.StatusUnauthorized
				for name := range strings.SplitSeq(op.allowed, "|") {
					if name == caller {
						want = http.StatusOK
					}
				}
				if got := status - status%100; (got == 200) != (want == http.StatusOK) ||
					(got != 200 && status != want) {
					t.Errorf("%s: got %d %s", caller, status, text)
				}
				if want == http.StatusUnauthorized && none[caller] == 0 &&
					!strings.Contains(text, "<Code>401</Code><Detail>"+op.text) {
					t.Errorf("%s: got %s", caller, text)
				}
				if want == http.StatusUnauthorized && op.method != "GET" &&
					(h.entities["orders"] == nil || h.entities["orders"].Version != 1 ||
						len(h.entities) != 1) {
					t.Errorf("%s was refused and changed something", caller)
				}
			}
		})
	}
}

// The texts of refusals below topics, and that Listen may read rules.
func TestAuthorizationBelowTopics(t *testing.T) {
	h := newHouse(t)
	for _, tc := range []struct {
		method, target, operation string
		updates                   string
		listener                  int
	}{
		{"GET", "/t/Subscriptions/s", "GetSubscription", "", 401},
		{"GET", "/t/Subscriptions", "EnumerateSubscriptions", "", 401},
		{"PUT", "/t/Subscriptions/s", "CreateOrUpdateSubscription", "", 401},
		{"PUT", "/t/Subscriptions/s", "CreateOrUpdateSubscription", "*", 401},
		{"DELETE", "/t/Subscriptions/s", "DeleteSubscription", "", 401},
		{"GET", "/t/Subscriptions/s/Rules/r", "GetRule", "", 404},
		{"GET", "/t/Subscriptions/s/Rules/", "EnumerateRules", "", 404},
		{"PUT", "/t/Subscriptions/s/Rules/r", "CreateOrUpdateRule", "", 401},
		{"DELETE", "/t/Subscriptions/s/Rules/r", "DeleteRule", "", 401},
	} {
		for policy, want := range map[string]int{"sender": 401, "listener": tc.listener} {
			status, text := h.do(t, tc.method, tc.target, queueBody(""), "If-Match", tc.updates,
				"Authorization", token(policy, "k", "https://host.test/"))
			if status != want || (want == 401 && !strings.Contains(text, "<Detail>401 "+
				"SubCode=40100: Unauthorized : Unauthorized access for '"+tc.operation+
				"' operation on endpoint 'sb://host.test/t/Subscriptions")) {
				t.Errorf("%s %s as %s: %d %s", tc.method, tc.target, policy, status, text)
			}
		}
	}
}

func TestRefusedTokensAreToldApart(t *testing.T) {
	h := newHouse(t)
	h.create(t, "orders", "")
	stale := auth.NewToken("https://host.test/", root, rootKey, now.Add(-time.Hour))
	for name, tc := range map[string]struct{ header, want string }{
		"none":     {"", "MissingToken: The authorization header was not found."},
		"nonsense": {"x", "MalformedToken: "},
		"expired":  {stale, "ExpiredToken: "},
		"wrong": {
			token(root, "x", "https://host.test/"),
			"InvalidSignature: The token has an invalid signature.",
		},
		"unknown": {
			token("x", rootKey, "https://host.test/"),
			"InvalidSignature: The token has an invalid signature.",
		},
		"jwt": {"Bearer eyJh.eyJz.c2ln", "MalformedToken: JSON web tokens are not supported"},
	} {
		response := h.response(t, "GET", "/orders", "", "Authorization", tc.header)
		if response.StatusCode != 401 || response.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: got %d, %v", name, response.StatusCode, response.Header)
		}
		if _, text := h.do(t, "GET", "/orders", "", "Authorization", tc.header); !strings.Contains(
			text, "<Code>401</Code><Detail>"+tc.want) {
			t.Errorf("%s: got %s", name, text)
		}
	}
	for name, header := range map[string]string{
		"Bearer before a signature": "Bearer " + token(root, rootKey, "https://host.test/"),
		"expired a minute ago":      auth.NewToken("host", root, rootKey, now.Add(-time.Minute)),
	} {
		if status, text := h.do(t, "GET", "/orders", "", "Authorization", header); status != 200 {
			t.Errorf("%s: got %d %s", name, status, text)
		}
	}
	if strings.Contains(h.log.String(), rootKey) || strings.Contains(h.log.String(), "sig=") {
		t.Errorf("the log tells secrets: %s", h.log.String())
	}
}

// The supplementary tokens of each SDK for a forward target called dest (1.5).
func TestForwardingWantsSendOnTheTarget(t *testing.T) {
	const body = "<ForwardTo>dest</ForwardTo><ForwardDeadLetteredMessagesTo>dest" +
		"</ForwardDeadLetteredMessagesTo>"
	exact := token(root, rootKey, "https://host.test/q?api-version=2024-05")
	for name, tc := range map[string]struct {
		main, forward, dead string
		status              int
	}{
		"Go signs the bare name": {
			exact, token(root, rootKey, "dest"), token(root, rootKey, "dest"), 201,
		},
		"JS signs the host": {
			exact, token(root, rootKey, "host.test:5300"), token(root, rootKey, "host.test"), 201,
		},
		".NET sends its own": {
			token(root, rootKey, "https://host.test/"),
			"Bearer " + token(root, rootKey, "https://host.test/"),
			token(root, rootKey, "https://host.test/"), 201,
		},
		"Python signs the target": {
			exact, token(root, rootKey, "sb://host.test/dest"),
			token(root, rootKey, "sb://host.test/dest"), 201,
		},
		"the right to send is all": {
			exact, token("sender", "k", "sb://host.test/dest"),
			token("sender", "k", "sb://host.test/dest"), 201,
		},
		"its own token may do":     {token(root, rootKey, "https://host.test/"), "", "", 201},
		"its own token may not do": {exact, "", "", 401},
		"one is not enough":        {exact, token(root, rootKey, "dest"), "", 401},
		"nor is the other":         {exact, "", token(root, rootKey, "dest"), 401},
		"listening is not sending": {
			exact, token("listener", "k", "sb://host.test/dest"), token(root, rootKey, "dest"), 401,
		},
		"another target": {
			exact, token(root, rootKey, "sb://host.test/other"), token(root, rootKey, "dest"), 401,
		},
		"a wrong key":               {exact, token(root, "x", "dest"), token(root, rootKey, "dest"), 401},
		"nonsense in its place":     {token(root, rootKey, "https://host.test/"), "x", "", 401},
		"nonsense in the other one": {token(root, rootKey, "https://host.test/"), "", "x", 401},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.create(t, "dest", "")
			status, text := h.do(t, "PUT", "/q", queueBody(body), "Authorization", tc.main,
				"ServiceBusSupplementaryAuthorization", tc.forward,
				"ServiceBusDlqSupplementaryAuthorization", tc.dead)
			if status != tc.status {
				t.Errorf("got %d %s", status, text)
			}
		})
	}
}

// A target is the entity that the catalog forwards to. The owner of one queue may not send to another one, however the
// address of that is written.
func TestAnAddressOfAnotherQueueIsThatQueue(t *testing.T) {
	for _, target := range []string{"victim", "sb://host.test/victim", "orders?://host.test/victim", "orders#://host.test/victim",
		"dest?a://host.test/victim", "sb://host.test/orders/..//victim", "//victim", "VICTIM"} {
		for _, name := range []string{"ForwardTo", "ForwardDeadLetteredMessagesTo"} {
			h := newHouse(t)
			for _, name := range []string{"orders", "dest", "victim"} {
				h.create(t, name, "")
			}
			status, text := h.do(t, "PUT", "/orders", queueBody("<"+name+">"+target+"</"+name+">"), "If-Match", "*",
				"Authorization", token("owner", "k", "https://host.test/orders"))
			if d := h.entities["orders"]; status == 200 || d.ForwardTo != "" || d.ForwardDeadLettersTo != "" {
				t.Errorf("%s to %s: got %d %s", name, target, status, clip(text))
			}
		}
	}
}
