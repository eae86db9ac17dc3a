package console

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// What a page asks for goes on with the token of its session, and with nothing else that the browser says.
func TestRequestsGoOnWithTheToken(t *testing.T) {
	d := newDesk(t)
	cookie := d.signIn("root", rootKey, "")
	var body string
	d.answer = func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		w.Header().Set("Location", "/somewhere")
		w.WriteHeader(http.StatusCreated)
	}
	w := d.do(with(request("POST", portPrefix+"/orders/eu/messages?timeout=1", "hello", "Region", "eu", "BrokerProperties", `{"Label":"a"}`,
		"Authorization", "SharedAccessSignature of somebody else", "If-Match", "*", "Accept", "application/json", "X-Forwarded-For", "10.1.1.1"), cookie))
	r, claim := d.last()
	if w.Code != http.StatusCreated || w.Header().Get("Location") != "/somewhere" || body != "hello" {
		t.Errorf("%d %v, the port read %q", w.Code, w.Header(), body)
	}
	if r.URL.Path != "/orders/eu/messages" || r.URL.RawQuery != "timeout=1" || claim.Policy != "root" {
		t.Errorf("the port was asked %s by %q", r.URL, claim.Policy)
	}
	for name := range r.Header {
		if !strings.Contains("|Accept|Authorization|Brokerproperties|Content-Type|If-Match|", "|"+name+"|") {
			t.Errorf("the port was told %s: %v", name, r.Header[name])
		}
	}
}

// Without a session nothing goes on, and with one not everything.
func TestWhatGoesOn(t *testing.T) {
	d := newDesk(t)
	cookie := d.signIn("root", rootKey, "")
	for path, want := range map[string]bool{
		"/api/entities": true, "/api/entities/orders/messages": true, "/api/cluster": true, "/api/cluster/drain": true,
		"/api/health/cluster": true, "/orders": true, "/orders/messages/head": true, "/trade/Subscriptions/eu/Rules": true, "/$Resources/Queues": true,
		"/api/backup": false, "/api/reset": false, "/api/audit": false, "/api/entitiesX": false, "/API/backup": false, "/debug/pprof/heap": false, "/metrics": false,
		"/": false, "/$servicebus/websocket": false, "/$console/session": false, "/api": false, "//api/reset": false, "/api/cluster/../reset": false,
	} {
		r := request("GET", "/", "")
		r.URL.Path = portPrefix + path
		if w := d.do(r); w.Code != 401 || w.Header().Get("Busbar-Console") != "signed-out" {
			t.Errorf("%s without a session: %d", path, w.Code)
		}
		if asked, _ := d.last(); asked != nil {
			t.Errorf("%s without a session: the port was asked", path)
		}
		w := d.do(with(r, cookie))
		asked, _ := d.last()
		if (asked != nil) != want || !want && w.Code != 404 {
			t.Errorf("%s: %d, the port was asked: %v", path, w.Code, asked != nil)
		}
	}
}
