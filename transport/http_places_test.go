package transport

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// begin sends the head of a request and the first bytes of a body of length bytes.
func (w *webClient) begin(method, path, token string, length int, first string) {
	w.t.Helper()
	_, err := fmt.Fprintf(w.conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n%s",
		method, path, token, length, first)
	if err != nil {
		w.t.Fatal(err)
	}
}

// answered reads the answer to a request that was begun: its status and text, 0 if the server ends the connection.
func (w *webClient) answered() (status int, text string) {
	w.t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(w.conn), nil)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Error(err)
	}
	return res.StatusCode, string(b)
}

// F8: bodies that do not end keep no other send waiting, though their senders have a token. Each is given up soon.
func TestSlowBodiesKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		b.broker.queue("q")
		token := httpToken(testPolicy, "http://localhost/")
		const slow = 200
		var all []*webClient
		for range slow {
			w := b.web()
			w.begin("POST", "/q/messages", token, 1000, "x")
			all = append(all, w)
		}
		synctest.Wait()
		if n := b.server.places.used(); n != slow {
			t.Fatalf("%d bodies are being read, want %d", n, slow)
		}
		began := time.Now()
		if got := b.web().ask("POST", "/q/messages", token); got != 201 || time.Since(began) != 0 {
			t.Errorf("a send beside them: %d after %v", got, time.Since(began))
		}
		if held, _ := b.server.Held(); held != 0 {
			t.Errorf("the node counts %d bytes for bodies of a byte", held)
		}
		for _, w := range all {
			if status, text := w.answered(); status != 408 || time.Since(began) != httpBodyGrace || !strings.Contains(text,
				"The body did not arrive: it has 5s, a second more for each 1024 bytes of it that have arrived, and 30s in all.") {
				t.Fatalf("a body that does not end: %d after %v: %s", status, time.Since(began), text)
			}
		}
		synctest.Wait()
		if n := b.server.places.used(); n != 0 {
			t.Errorf("%d places are taken", n)
		}
	})
}

// F8: a body has to come on: at least 1 KiB each second, but for the first five, and within 30 s.
func TestABodyHasToComeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		b.broker.queue("q")
		token := httpToken(testPolicy, "http://localhost/")
		for name, c := range map[string]struct {
			bytes, each int // of the body, and that come each second
			status      int
			after       time.Duration
		}{
			"quick":                {5_000, 2_500, 201, 1500 * time.Millisecond},
			"slow, but it comes":   {22_000, 1_100, 201, 19500 * time.Millisecond},
			"a byte each second":   {1_000, 1, 408, 5 * time.Second},
			"100 bytes a second":   {22_000, 100, 408, 5 * time.Second},
			"500 bytes a second":   {22_000, 500, 408, 8 * time.Second},
			"steady, but for ever": {60_000, 1_500, 408, 30 * time.Second},
		} {
			w := b.web()
			began := time.Now()
			w.begin("POST", "/q/messages", token, c.bytes, "")
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for left, pause := c.bytes, time.Second/2; left > 0; left, pause = left-c.each, time.Second {
					time.Sleep(pause)
					if _, err := io.WriteString(w.conn, strings.Repeat("x", min(left, c.each))); err != nil {
						return
					}
				}
			}()
			if status, text := w.answered(); status != c.status || time.Since(began) != c.after {
				t.Errorf("%s: %d after %v, want %d after %v: %s", name, status, time.Since(began), c.status, c.after, text)
			}
			w.conn.Close()
			<-sent
		}
	})
}

// A send whose body has arrived may take the broker as long as a request may: the deadline of the body is over then.
func TestASendMayTakeLongerThanItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		b.broker.queue("q")
		const slow = 80 * time.Second
		b.broker.after = func(fsm.Command, fsm.Outcome) chan struct{} {
			done := make(chan struct{})
			time.AfterFunc(slow, func() { close(done) })
			return done
		}
		w := b.web()
		began := time.Now()
		w.begin("POST", "/q/messages", httpToken(testPolicy, "http://localhost/"), 3, "all")
		if status, text := w.answered(); status != 201 || time.Since(began) != slow {
			t.Errorf("%d after %v, want 201 after %v: %s", status, time.Since(began), slow, text)
		}
	})
}

// F8: one key leaves places for others, whether it begins bodies or waits for messages, and what it holds is in the refusal.
// Without a token nobody takes a place.
func TestAKeyLeavesPlacesForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 12
		b := newBubble(t, 1, func(c *Config) { c.MaxHTTPRequests = places })
		t.Cleanup(b.close)
		b.broker.queue("q")
		root, sender := httpToken(testPolicy, "http://localhost/"), httpToken("sender", "http://localhost/")
		begin := func(method, path, token string, length int, first string) {
			w := b.web()
			t.Cleanup(func() { w.conn.Close() })
			w.begin(method, path, token, length, first)
		}
		for i := range places / 2 {
			if i%2 == 0 {
				begin("POST", "/q/messages", root, 1000, "x")
			} else {
				begin("DELETE", "/q/messages/head?timeout=600", root, 0, "")
			}
		}
		synctest.Wait()
		if n := b.server.places.used(); n != places/2 {
			t.Fatalf("%d places are taken, want %d", n, places/2)
		}
		for _, method := range []string{"POST", "DELETE"} {
			w := b.web()
			w.begin(method, "/q/messages/head", root, 0, "")
			if status, text := w.answered(); status != 503 || !strings.Contains(text, "6 requests that send or receive over HTTP are under "+
				"way of the 12 that this node serves at a time, and the key &#39;RootManageSharedAccessKey&#39; has 6 of them.") {
				t.Errorf("%s by the key that has half of the places: %d %s", method, status, text)
			}
		}
		if got := b.server.Stats().Rejected[siteHTTP].Load(); got != 2 {
			t.Errorf("%d refusals are counted, want 2", got)
		}
		for range 3 { // a second key that holds places leaves some, too
			begin("POST", "/q/messages", sender, 1000, "x")
		}
		synctest.Wait()
		if n := b.server.places.used(); n != 9 {
			t.Errorf("%d places are taken, want 9", n)
		}
		if status := b.web().ask("POST", "/q/messages", sender); status != 503 {
			t.Errorf("a fourth request of the second key, with three places free: %d", status)
		}
		if status := b.web().ask("POST", "/q/messages", ""); status != 401 {
			t.Errorf("without a token: %d", status)
		}
		time.Sleep(httpBodyGrace)
		synctest.Wait()
		if status := b.web().ask("POST", "/q/messages", sender); status != 201 {
			t.Errorf("once the bodies are given up: %d", status)
		}
	})
}

// The body that a receive has and nobody wants holds up neither its answer nor its place for long.
func TestAReceiveDoesNotWaitForItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		b.broker.queue("q")
		w := b.web()
		began := time.Now()
		w.begin("DELETE", "/q/messages/head?timeout=40", httpToken(testPolicy, "http://localhost/"), 9, "half")
		if status, text := w.answered(); status != 204 || time.Since(began) != 40*time.Second {
			t.Errorf("%d after %v: %s", status, time.Since(began), text)
		}
		synctest.Wait()
		if n := b.server.places.used(); n != 0 {
			t.Errorf("%d places are taken", n)
		}
	})
}
