package scenario

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// curl makes one HTTP request over a connection of its own.
func (b *bench) curl(method, path, body string) (status int, header http.Header, text string) {
	b.Helper()
	ctx, cancel := b.soon()
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return b.lab.Dial(ctx, int(b.clients.Add(1)), 0)
		}}}
	r, err := http.NewRequestWithContext(ctx, method, "http://broker"+path, strings.NewReader(body))
	b.must("make a request", err)
	name, key := b.lab.Policy()
	r.Header.Set("Authorization", auth.NewToken("http://broker/", name, key, time.Now().Add(time.Hour)))
	res, err := client.Do(r)
	b.must(method+" "+path, err)
	answer, err := io.ReadAll(res.Body)
	b.must("read the answer", err)
	b.must("close", res.Body.Close())
	client.CloseIdleConnections()
	return res.StatusCode, res.Header, string(answer)
}

// T-29; S-163
func TestT29ALockOverHTTPOutlivesItsConnection(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Second))
		status, _, _ := b.curl("POST", "/q/messages", "a")
		want(b, "sent", status, http.StatusCreated)
		status, header, text := b.curl("POST", "/q/messages/head?timeout=5", "")
		want(b, "received", status, http.StatusCreated)
		want(b, "text", text, "a")
		b.client().receiver("q").none(4 * time.Second)
		at := header.Get("Location")
		if i := strings.Index(at, "/q/"); i > 0 {
			at = at[i:]
		}
		status, _, text = b.curl("DELETE", at, "")
		want(b, "completed: "+text, status, http.StatusOK)
		want(b, "left", b.counts("q").Active, 0)
		// Not completed, it comes back when its lock ends.
		b.client().send("q", "b")
		status, _, _ = b.curl("POST", "/q/messages/head?timeout=5", "")
		want(b, "received", status, http.StatusCreated)
		began := time.Now()
		want(b, "again", b.client().receiver("q").one().text(), "b")
		b.about("when", time.Now(), began.Add(5*time.Second), time.Second)
	})
}
