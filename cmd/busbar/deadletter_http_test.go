package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// S-168: a dead-letter queue is not created, changed or deleted by itself: the management API refuses its path, and
// it goes on as it was.
func TestADeadLetterQueueIsNotManagedByItself(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "")
	send := func() {
		t.Helper()
		if res, text := l.request(t, "POST", "/q/messages", "a", ""); res.StatusCode != http.StatusCreated {
			t.Fatalf("send: %d %s", res.StatusCode, text)
		}
	}
	send()
	d, err := l.node.directory.Get(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	propose := func(c fsm.Command) fsm.Outcome {
		t.Helper()
		o, err := l.node.router.Propose(t.Context(), fsm.RequestID{}, fsm.Key{Entity: d.ID}, c)
		if err != nil || o.Refusal != fsm.None {
			t.Fatalf("%T: %v %v", c, o.Refusal, err)
		}
		return o
	}
	token := propose(&fsm.Lock{Max: 1, MaxBytes: 1 << 20}).Locked[0].Token
	propose(&fsm.Settle{Items: []fsm.SettleItem{{Token: token, Verdict: fsm.Kill}}})
	for _, path := range []string{"/q/$DeadLetterQueue", "/q/$deadletterqueue"} {
		for _, r := range []struct{ method, body, match string }{
			{http.MethodPut, atomOf("QueueDescription", ""), ""},
			{http.MethodPut, atomOf("QueueDescription", "<MaxDeliveryCount>3</MaxDeliveryCount>"), "*"},
			{http.MethodDelete, "", ""},
		} {
			headers := []string{"Content-Type", dial.AtomEntryType}
			if r.match != "" {
				headers = append(headers, "If-Match", r.match)
			}
			res, text := l.request(t, r.method, path, r.body, "", headers...)
			if res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s: %d %s", r.method, path, res.StatusCode, text)
			}
		}
	}
	if res, text := l.request(t, http.MethodDelete, "/q/$DeadLetterQueue/messages/head?timeout=10", "", ""); res.StatusCode != 200 || text != "a" {
		t.Errorf("the dead letter is %d %q", res.StatusCode, text)
	}
}

// S-163: a lock that was taken over HTTP belongs to no connection: it is there when that is closed, and is settled
// over another one.
func TestALockOverHTTPBelongsToNoConnection(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "<LockDuration>PT5M</LockDuration>")
	l.request(t, "POST", "/q/messages", "a", "")
	once := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	do := func(method, url string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", auth.NewToken("http://"+l.host+"/", devKeyName, devKey, time.Now().Add(time.Hour)))
		res, err := once.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	res := do(http.MethodPost, "http://"+l.host+"/q/messages/head?timeout=10")
	at := res.Header.Get("Location")
	if res.StatusCode != http.StatusCreated || at == "" {
		t.Fatalf("lock: %d, location %q", res.StatusCode, at)
	}
	d, err := l.node.directory.Get(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.node.router.Query(t.Context(), fsm.Key{Entity: d.ID}, &fsm.ListLocks{Max: 10})
	if err != nil || len(a.Locks) != 1 || time.Until(time.UnixMilli(int64(a.Locks[0].LockedUntil))) < 4*time.Minute {
		t.Errorf("the locks behind the end of the connection are %+v, %v; want one of five minutes", a.Locks, err)
	}
	if res := do(http.MethodPost, "http://"+l.host+"/q/messages/head?timeout=0"); res.StatusCode != http.StatusNoContent {
		t.Errorf("another one got %d, want nothing", res.StatusCode)
	}
	if res := do(http.MethodDelete, at); res.StatusCode != http.StatusOK {
		t.Errorf("complete over another connection: %d", res.StatusCode)
	}
}
