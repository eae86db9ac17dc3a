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
