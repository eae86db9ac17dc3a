package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// T-215, S-256: what an operator suspends with the command line, over HTTP on a running node: users are
// refused, whatever their rights, and the operator lifts it.
func TestTheOperatorSuspendsAndResumes(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	key := freshKey(t)
	l.put(t, "/q", "QueueDescription", "<AuthorizationRules>"+accessRule("owner", key, key, "Manage", "Send", "Listen")+
		"</AuthorizationRules>")
	l.put(t, "/t", "TopicDescription", "")
	l.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "<Status>Active</Status>")
	root := l.target(devKeyName, devKey)
	operator := func(want int, keyName, key string, args ...string) string {
		t.Helper()
		out, code := execute(t, client.NewQueueCommand(), "", append(args, "--ops", "http://"+l.opsHost(), "--connection-string",
			"Endpoint=sb://"+root.Host+";SharedAccessKeyName="+keyName+";SharedAccessKey="+key+";UseDevelopmentEmulator=true")...)
		if code != want {
			t.Fatalf("%v: %d %s", args, code, out)
		}
		return out
	}
	ask := func(want int, text, method, path, body string, headers ...string) {
		t.Helper()
		res, got := l.request(t, method, path, body, "", headers...)
		if res.StatusCode != want || !strings.Contains(got, text) {
			t.Errorf("%s %s: %d %s", method, path, res.StatusCode, got)
		}
	}
	ask(201, "", "POST", "/q/messages", "kept")

	if out := operator(0, devKeyName, devKey, "suspend", "q"); out != "q is Disabled and suspended; its user has set Active\n" {
		t.Errorf("%q", out)
	}
	operator(0, devKeyName, devKey, "suspend", "t", "--status", "SendDisabled")
	out := operator(0, devKeyName, devKey, "suspend", "t/Subscriptions/s", "--status", "ReceiveDisabled", "--json")
	if !strings.Contains(out, `"status":"ReceiveDisabled","suspended":true,"userStatus":"Active"`) {
		t.Errorf("%q", out)
	}
	const unauthorized = "SubCode=40100. Unauthorized: an operator has suspended"
	for path, element := range map[string]string{"/q": "QueueDescription", "/t": "TopicDescription",
		"/t/Subscriptions/s": "SubscriptionDescription"} {
		ask(401, unauthorized, "PUT", path, atomOf(element, "<Status>Active</Status>"), "If-Match", "*")
		ask(401, unauthorized, "PUT", path, atomOf(element, "<UserMetadata>x</UserMetadata>"), "If-Match", "*")
		ask(401, unauthorized, "DELETE", path, "")
	}
	res, text := l.request(t, "PUT", "/q", atomOf("QueueDescription", "<Status>Active</Status>"),
		auth.NewToken("http://"+l.host+"/q", "owner", key, time.Now().Add(time.Minute)), "If-Match", "*")
	if res.StatusCode != 401 || !strings.Contains(text, unauthorized) {
		t.Errorf("with a key of the queue: %d %s", res.StatusCode, text)
	}
	operator(exit.Unauthorised, "owner", key, "resume", "q")
	operator(exit.Unauthorised, devKeyName, devKey, "options", "q", "--processed-history")
	operator(exit.Usage, devKeyName, devKey, "suspend", "q", "--status", "Active")
	operator(exit.NotFound, devKeyName, devKey, "suspend", "none")

	ask(200, "<Status>Disabled</Status>", "GET", "/q", "")
	ask(200, "<Status>SendDisabled</Status>", "GET", "/t", "")
	ask(403, "currently disabled", "POST", "/q/messages", "more")
	ask(403, "currently disabled", "DELETE", "/q/messages/head", "")
	ask(403, "currently disabled", "POST", "/t/messages", "more")
	ask(403, "currently disabled", "DELETE", "/t/subscriptions/s/messages/head", "")

	for _, name := range []string{"q", "t", "t/Subscriptions/s"} {
		if out := operator(0, devKeyName, devKey, "resume", name); out != name+" is Active\n" {
			t.Errorf("%q", out)
		}
	}
	ask(200, "kept", "DELETE", "/q/messages/head", "")
	ask(200, "", "PUT", "/q", atomOf("QueueDescription", "<Status>ReceiveDisabled</Status>"), "If-Match", "*")
	ask(http.StatusOK, "", "DELETE", "/t", "")
}
