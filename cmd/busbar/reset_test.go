package main

import (
	"fmt"
	"strings"
	"testing"
)

// A reset empties everything and keeps entities, rules and keys; a page of another origin cannot ask
// for it, nor can anybody of a node that is not for development.
func TestReset(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	key := freshKey(t)
	l.put(t, "/q", "QueueDescription", "<MaxDeliveryCount>3</MaxDeliveryCount><AuthorizationRules>"+
		accessRule("app", key, key, "Send")+"</AuthorizationRules>")
	l.put(t, "/t", "TopicDescription", "")
	l.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "<ForwardTo>q</ForwardTo>")
	l.put(t, "/t/Subscriptions/s/Rules/r", "RuleDescription", "")
	for i := range 3 {
		res, text := l.request(t, "POST", "/q/messages", fmt.Sprint(i), "")
		if res.StatusCode != 201 {
			t.Fatalf("send: %d %s", res.StatusCode, text)
		}
	}
	for _, path := range []string{"q", "t/Subscriptions/s"} { // what is suspended is emptied, too
		res, text := l.requestTo(t, l.opsHost(), "POST", "/api/entities/"+path+"/suspend", "", "")
		if res.StatusCode != 200 {
			t.Fatalf("suspend: %d %s", res.StatusCode, text)
		}
	}
	res, text := l.requestTo(t, l.opsHost(), "POST", resetPath, "", "", "Origin", "https://evil.test",
		"Sec-Fetch-Site", "cross-site")
	if res.StatusCode != 403 {
		t.Errorf("another origin: %d %s", res.StatusCode, text)
	}
	res, text = l.requestTo(t, l.opsHost(), "POST", resetPath, "", "")
	if res.StatusCode != 200 || !strings.Contains(text, `"entities":3`) {
		t.Fatalf("reset: %d %s", res.StatusCode, text)
	}
	_, text = l.request(t, "GET", "/q", "", "")
	for _, want := range []string{"<MessageCount>0<", "<MaxDeliveryCount>3<", key} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	_, text = l.request(t, "GET", "/t/Subscriptions/s/Rules", "", "")
	if strings.Count(text, "<entry") != 2 {
		t.Errorf("rules: %s", text)
	}
	if _, text = l.request(t, "POST", "/q/messages", "x", ""); text != "" {
		t.Error(text)
	}
	res, _ = l.request(t, "DELETE", "/q/messages/head", "", "")
	if p := res.Header.Get("BrokerProperties"); !strings.Contains(p, `"SequenceNumber":1,`) {
		t.Errorf("numbers go on: %s", p)
	}

	grown := openLive(t, nodeConfig(t, func(c *Config) { c.Dev = false; c.TLSListen = nil }))
	grown.put(t, "/q", "QueueDescription", "")
	if res, _ := grown.requestTo(t, grown.opsHost(), "POST", resetPath, "", ""); res.StatusCode != 405 {
		t.Errorf("without --dev: %d", res.StatusCode)
	}
}
