package rest

import (
	"strings"
	"testing"
)

// A description is judged as its creation would, by a request and offline, and nothing is made of it.
func TestADescriptionIsJudged(t *testing.T) {
	const slow = "<LockDuration>PT10M</LockDuration>"
	rule := func(sql string) string {
		return entryBody("RuleDescription", `<Filter i:type="SqlFilter" xmlns:i="`+instanceSpace+`"><SqlExpression>`+sql+
			`</SqlExpression></Filter>`)
	}
	h := newHouse(t)
	for _, tc := range []struct{ path, body, want string }{
		{"orders", queueBody(""), ""}, {"a/b", entryBody("TopicDescription", ""), ""},
		{"t/Subscriptions/s", entryBody("SubscriptionDescription", ""), ""}, {"t/Subscriptions/s/Rules/r", rule("a = 1"), ""},
		{"orders", queueBody(slow), "LockDuration"}, {"t/Subscriptions/s", entryBody("SubscriptionDescription", slow), "LockDuration"},
		{"a//b", queueBody(""), "not allowed"}, {"t/Subscriptions/s s", entryBody("SubscriptionDescription", ""), "not allowed"},
		{"t/Subscriptions/s/Rules/r", rule("a = = 1"), "character 5"},
		{"t/Subscriptions/s/Rules/r", entryBody("SubscriptionDescription", ""), "not the description of a rule"},
		{"t/Subscriptions", entryBody("SubscriptionDescription", ""), "names no queue, topic, subscription or rule"},
		{"$Resources/Queues", queueBody(""), "names no queue, topic, subscription or rule"},
		{"orders", entryBody("SubscriptionDescription", ""), "no description of what the path names"},
		{"t/Subscriptions/s", queueBody(""), "no description of what the path names"}, {"orders", "<entry", "cannot be read"},
	} {
		status, text := h.do(t, "POST", "/"+strings.ReplaceAll(tc.path, " ", "%20")+"?validate=true", tc.body)
		err := Validate(Defaults(), tc.path, strings.NewReader(tc.body))
		if tc.want == "" {
			if status != 204 || err != nil {
				t.Errorf("%s: %d %s, offline %v", tc.path, status, text, err)
			}
			continue
		}
		if status != 400 || !strings.Contains(text, tc.want) || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %d %s, offline %v, want %s", tc.path, status, text, err, tc.want)
		}
	}
	if _, text := h.do(t, "GET", "/$Resources/Queues", ""); strings.Contains(text, "<entry") {
		t.Errorf("a queue was made: %s", text)
	}
	if status, _ := h.do(t, "POST", "/orders", queueBody("")); status != 405 {
		t.Errorf("without the parameter: %d, want 405", status)
	}
	for _, policy := range []string{"sender", "listener"} {
		status, text := h.do(t, "POST", "/orders?validate=true", queueBody(slow), "Authorization", token(policy, "k", "https://host.test/"))
		if status != 401 || strings.Contains(text, "LockDuration") {
			t.Errorf("as %s: %d %s", policy, status, text)
		}
	}
	open := Defaults()
	open.MaxLockDuration *= 4
	if err := Validate(open, "orders", strings.NewReader(queueBody(slow))); err != nil {
		t.Errorf("with a longer lock allowed: %v", err)
	}
}
