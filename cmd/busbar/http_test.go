package main

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// Messages go in and out over HTTP on the client port and on the operations port, beside the
// management API.
func TestMessagesOverHTTP(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "")
	for _, host := range []string{l.host, l.opsHost()} {
		res, text := l.requestTo(t, host, "POST", "/q/messages", "hello", "", "Priority", "5")
		if res.StatusCode != 201 {
			t.Fatalf("send: %d %s", res.StatusCode, text)
		}
		res, text = l.requestTo(t, host, "POST", "/q/messages/head?timeout=10", "", "")
		if res.StatusCode != 201 || text != "hello" || res.Header.Get("Priority") != "5" {
			t.Fatalf("lock: %d %s %v", res.StatusCode, text, res.Header)
		}
		at, err := url.Parse(res.Header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		// A token for the queue alone does as well.
		token := auth.NewToken("http://"+host+"/q", devKeyName, devKey, time.Now().Add(time.Hour))
		if res, text = l.requestTo(t, at.Host, "DELETE", at.Path, "", token); res.StatusCode != 200 {
			t.Fatalf("complete: %d %s", res.StatusCode, text)
		}
	}
	if _, text := l.request(t, "GET", "/q", "", ""); !strings.Contains(text, "<MessageCount>0<") {
		t.Errorf("got %s", text)
	}
}

// A socket is no stranger's once its token was accepted, whatever the answer is; what anybody may see makes none known.
func TestAnAcceptedTokenMakesASocketKnown(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	for _, c := range []struct {
		name, method, path, token string
		status, strangers         int
	}{
		{"the public's view of the namespace", "GET", "/", "none", 200, 1},
		{"a token of another key", "DELETE", "/nosuch", auth.NewToken("http://"+l.host, devKeyName, "other", time.Now().Add(time.Hour)), 401, 1},
		{"an accepted token for what is not there", "DELETE", "/nosuch", "", 404, 0},
	} {
		res, text := l.request(t, c.method, c.path, "", c.token)
		if _, strangers := l.front.Sockets().Used(); res.StatusCode != c.status || strangers != c.strangers {
			t.Errorf("%s: %d %s, %d strangers, want %d and %d", c.name, res.StatusCode, text, strangers, c.status, c.strangers)
		}
	}
}

// A rule that ATOM sets selects what is published over HTTP, changes the copies, and takes effect while
// a receiver waits; the counters tell of it.
func TestTopicsOverHTTP(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/trade", "TopicDescription", "")
	l.put(t, "/trade/Subscriptions/eu", "SubscriptionDescription", `<DefaultRuleDescription><Filter `+
		`i:type="SqlFilter"><SqlExpression>Region = 'eu'</SqlExpression></Filter><Action i:type="SqlRuleAction">`+
		`<SqlExpression>SET Seen = 1</SqlExpression></Action><Name>eu</Name></DefaultRuleDescription>`)
	l.put(t, "/trade/Subscriptions/all", "SubscriptionDescription", "")
	publish := func(region string) {
		t.Helper()
		res, text := l.request(t, "POST", "/trade/messages", region, "", "Region", `"`+region+`"`)
		if res.StatusCode != 201 {
			t.Fatalf("publish: %d %s", res.StatusCode, text)
		}
	}
	publish("eu")
	publish("us")
	for path, want := range map[string]string{
		"/trade/Subscriptions/eu": "<MessageCount>1<", "/trade/Subscriptions/all": "<MessageCount>2<",
		"/trade": "<SubscriptionCount>2<",
	} {
		if _, text := l.request(t, "GET", path, "", ""); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in %s", path, want, text)
		}
	}
	take := func(wait, want string) {
		t.Helper()
		res, text := l.request(t, "DELETE", "/trade/subscriptions/eu/messages/head?timeout="+wait, "", "")
		if text != want || (want == "") != (res.StatusCode == 204) {
			t.Fatalf("got %d %q, want %q", res.StatusCode, text, want)
		}
		if want == "eu" && res.Header.Get("Seen") != "1" {
			t.Errorf("the action did nothing: %v", res.Header)
		}
	}
	take("10", "eu")
	take("0", "")
	l.put(t, "/trade/Subscriptions/eu/Rules/us", "RuleDescription", `<Filter i:type="CorrelationFilter">`+
		`<Properties><KeyValueOfstringanyType><Key>Region</Key><Value i:type="s:string" `+
		`xmlns:s="http://www.w3.org/2001/XMLSchema">us</Value></KeyValueOfstringanyType></Properties></Filter>`)
	publish("us")
	take("10", "us")
	// What is disabled refuses at once, and works again.
	l.put(t, "/trade", "TopicDescription", "<Status>SendDisabled</Status>", "If-Match", "*")
	if res, _ := l.request(t, "POST", "/trade/messages", "x", "", "Region", `"eu"`); res.StatusCode != 403 {
		t.Errorf("sent to a disabled topic: %d", res.StatusCode)
	}
	l.put(t, "/trade", "TopicDescription", "", "If-Match", "*")
	publish("eu")
	take("10", "eu")
}
