package attack

import (
	"bufio"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/transport/auth"
)

// token is one of the node's well-known key, for the whole namespace.
func token() string {
	return auth.NewToken("sb://localhost/", cluster.KeyName, cluster.Key, time.Now().Add(time.Hour))
}

// answers writes bytes to a node and returns the codes and bodies of the answers until the node ends the connection, or is
// silent after an answer.
func (a *attack) answers(n *cluster.Node, request string) (codes []int, texts []string, ended bool) {
	a.Helper()
	c := a.dial(n.AMQP)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = io.WriteString(c, request) }()
	r := bufio.NewReader(c)
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return codes, texts, !isTimeout(err)
		}
		text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		codes, texts = append(codes, res.StatusCode), append(texts, html.UnescapeString(string(text)))
		if err != nil || res.Close {
			return codes, texts, true
		}
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // for a second answer
	}
}

// sending is the head of a request that sends, with further lines.
func (a *attack) sending(lines ...string) string {
	return "POST /" + a.queue + "/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + token() + "\r\n" + strings.Join(lines, "\r\n") + "\r\n"
}

// ambiguous are requests whose end two readers may see in different places, or that are too large. None may store a message.
func (a *attack) ambiguous() map[string]struct {
	request string
	code    int
} {
	type test = struct {
		request string
		code    int
	}
	hidden := a.sending("Content-Length: 8", "") + "smuggled"
	both := func(first, second string) string { return a.sending(first, second, "") + "0\r\n\r\n" + hidden }
	all := map[string]test{
		"two lengths":               {a.sending("Content-Length: 0", fmt.Sprint("Content-Length: ", len(hidden)), "") + hidden, 400},
		"two lengths, exchanged":    {a.sending(fmt.Sprint("Content-Length: ", len(hidden)), "Content-Length: 0", "") + hidden, 400},
		"two codings":               {a.sending("Transfer-Encoding: chunked", "Transfer-Encoding: identity", "") + "0\r\n\r\n" + hidden, 501},
		"chunked and another":       {both("Transfer-Encoding: chunked, identity", "X: y"), 501},
		"an unknown coding":         {both("Transfer-Encoding: xchunked", "Content-Length: 5"), 501},
		"a coding with a tab":       {both("Transfer-Encoding: \x0bchunked", "Content-Length: 5"), 400},
		"a space before the colon":  {both("Transfer-Encoding : chunked", "Content-Length: 5"), 400},
		"a line of two":             {both("X: y\r\n Transfer-Encoding: chunked", "Content-Length : 5"), 400},
		"NUL in a value":            {a.sending("X: a\x00b", "Content-Length: 0", ""), 400},
		"no host":                   {"POST /" + a.queue + "/messages HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400},
		"two hosts":                 {a.sending("Host: other", "Content-Length: 0", ""), 400},
		"HTTP/9.9":                  {"POST /" + a.queue + "/messages HTTP/9.9\r\nHost: x\r\n\r\n", 505},
		"a header of 200 KB":        {a.sending("X: "+strings.Repeat("x", 200_000), ""), 431},
		"20,000 headers":            {a.sending(strings.Repeat("X: y\r\n", 20_000), ""), 431},
		"an address of 200 KB":      {"GET /" + strings.Repeat("a", 200_000) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
		"2 tokens":                  {a.sending("Authorization: "+token(), "Content-Length: 0", ""), 400},
		"BrokerProperties a nest":   {a.sending("Content-Length: 0", "BrokerProperties: "+strings.Repeat("[", 30_000), ""), 400},
		"BrokerProperties 30 KB":    {a.sending("Content-Length: 0", `BrokerProperties: {"MessageId":"`+strings.Repeat("m", 30_000)+`"}`, ""), 400},
		"BrokerProperties too late": {a.sending("Content-Length: 0", `BrokerProperties: {"ScheduledEnqueueTimeUtc":"Fri, 31 Feb 99999 25:61:61 GMT"}`, ""), 400},
		"BrokerProperties 1e999":    {a.sending("Content-Length: 0", `BrokerProperties: {"TimeToLive":1e999}`, ""), 400},
	}
	for _, length := range []string{"-1", "+5", "5,5", "0x5", "5 5", "99999999999999999999", "", "1e3"} {
		all["a length of "+length] = test{a.sending("Content-Length: "+length, "") + "smuggled", 400}
	}
	batch := func(body string) test {
		return test{a.sending("Content-Type: application/vnd.microsoft.servicebus.json", fmt.Sprint("Content-Length: ", len(body)), "Connection: close", "") + body, 400}
	}
	all["a batch that is a nest"] = batch(strings.Repeat("[", 1_000_000))
	all["a batch of maps in maps"] = batch(`[{"Body":"x","UserProperties":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + `}]`)
	all["a property that is a nest"] = batch(`[{"Body":"x","UserProperties":{"a":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}}]`)
	all["a batch and more"] = batch(`[{"Body":"x"}] [{"Body":"smuggled"}]`)
	return all
}

// Requests that are smuggled behind another, bombs of headers, of JSON and of chunks: each has one answer with its code, and
// none stores a message.
func TestHTTPRequestsThatHideOrSwell(t *testing.T) {
	onClusters(t, func(a *attack) string {
		n := a.c.Nodes[0]
		all := a.ambiguous()
		names := slices.Sorted(maps.Keys(all))
		for range size(1, 20) {
			a.each(len(names), func(i int) error {
				tc := all[names[i]]
				codes, texts, ended := a.answers(n, tc.request)
				if len(codes) != 1 || codes[0] != tc.code || !ended && tc.code != 400 {
					return fmt.Errorf("%s: %v, ended %t, want %d: %.200q", names[i], codes, ended, tc.code, texts)
				}
				return nil
			})
			a.chunks(n)
		}
		a.empty(a.queue)
		a.lengthBesideChunks(n)
		return fmt.Sprintf("%d requests", size(1, 20)*(len(all)+5))
	})
}

// chunks sends bodies in chunks whose sizes are wrong, and one with a length beside it.
func (a *attack) chunks(n *cluster.Node) {
	a.Helper()
	for name, chunk := range map[string]string{
		"2^64": "10000000000000000\r\nx\r\n0\r\n\r\n", "more than 64 bits": strings.Repeat("f", 40) + "\r\nx\r\n0\r\n\r\n",
		"an extension of 1 MB": "1;" + strings.Repeat("x", 1<<20) + "\r\nx\r\n0\r\n\r\n", "no number": "xyz\r\nx\r\n0\r\n\r\n",
		"a chunk longer than it says": "1\r\nxsmuggled\r\n0\r\n\r\n",
	} {
		codes, texts, ended := a.answers(n, a.sending("Transfer-Encoding: chunked", "")+chunk)
		if len(codes) != 1 || codes[0] != 408 || !ended {
			a.Errorf("chunk of %s: %v, ended %t, want 408: %.200q", name, codes, ended, texts)
		}
	}
}

// lengthBesideChunks sends a body in chunks and a length that says otherwise. The chunks count, and the connection ends
// behind them (RFC 9112 section 6.1): what a proxy took for a part of the body is no request of its own.
func (a *attack) lengthBesideChunks(n *cluster.Node) {
	a.Helper()
	hidden := a.sending("Content-Length: 8", "") + "smuggled"
	codes, texts, ended := a.answers(n, a.sending(fmt.Sprint("Content-Length: ", 15+len(hidden)), "Transfer-Encoding: chunked", "")+
		"5\r\nfirst\r\n0\r\n\r\n"+hidden)
	if len(codes) != 1 || codes[0] != 201 && codes[0] != 400 || !ended {
		a.Errorf("a length beside chunks: %v, ended %t: %q", codes, ended, texts)
	}
}

// documents are descriptions of entities that must not be read to their end, or not at all.
func documents() map[string]string {
	entry := func(inside string) string {
		return `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns:i="http://www.w3.org/2001/XMLSchema-instance" xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">` +
			inside + `</QueueDescription></content></entry>`
	}
	laughs := `<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha">`
	for c := 'b'; c <= 'k'; c++ {
		laughs += fmt.Sprintf(`<!ENTITY %c "%s">`, c, strings.Repeat(fmt.Sprintf("&%c;", c-1), 10))
	}
	return map[string]string{
		"a billion laughs":      laughs + "]>" + entry("<UserMetadata>&k;</UserMetadata>"),
		"an entity of a file":   `<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]>` + entry("<UserMetadata>&f;</UserMetadata>"),
		"an undeclared entity":  entry("<UserMetadata>&nobody;</UserMetadata>"),
		"17 levels":             entry(strings.Repeat("<a>", 17) + strings.Repeat("</a>", 17)),
		"100,000 levels":        entry(strings.Repeat("<a>", 100_000) + strings.Repeat("</a>", 100_000)),
		"2,000 elements":        entry(strings.Repeat("<a/>", 2_000)),
		"never closed":          strings.Repeat("<a>", 10),
		"2 MB":                  entry("<UserMetadata>" + strings.Repeat("x", 2<<20) + "</UserMetadata>"),
		"20,000 attributes":     entry("<UserMetadata " + strings.Repeat(`a="b" `, 20_000) + "/><a>"),
		"NUL":                   entry("<UserMetadata>\x00</UserMetadata>"),
		"invalid UTF-8":         entry("<UserMetadata>\xff</UserMetadata>"),
		"another encoding":      `<?xml version="1.0" encoding="UTF-7"?>` + entry(""),
		"two roots":             entry("") + entry(""),
		"text behind the root":  entry("") + "smuggled",
		"numbers without limit": entry("<MaxDeliveryCount>999999999999999999999999</MaxDeliveryCount>"),
		"a negative number":     entry("<MaxDeliveryCount>-1</MaxDeliveryCount>"),
		"a duration of years":   entry("<LockDuration>P99999999999999999Y</LockDuration>"),
	}
}

// Documents that expand, nest or swell: each is refused, and no entity comes of it.
func TestXMLThatExpandsOrNests(t *testing.T) {
	onClusters(t, func(a *attack) string {
		all := documents()
		for range size(1, 20) {
			for name, text := range all {
				path := a.queue + "-new"
				codes, texts, _ := a.answers(a.c.Nodes[0], "PUT /"+path+"?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\nAuthorization: "+token()+
					"\r\nContent-Type: application/atom+xml;type=entry;charset=utf-8\r\nConnection: close\r\n"+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(text))+text)
				want := 400
				if name == "2 MB" {
					want = 413
				}
				if len(codes) != 1 || codes[0] != want {
					a.Errorf("%s: %v, want %d: %.300q", name, codes, want, texts)
				}
				m, err := a.c.Nodes[0].Admin(false)
				a.must("admin client", err)
				got, err := m.GetQueue(a.ctx, path, nil)
				if err != nil || got != nil {
					a.Fatalf("%s: the queue is there: %+v, %v", name, got, err)
				}
			}
		}
		return fmt.Sprintf("%d documents", size(1, 20)*len(all))
	})
}

// Bodies that arrive byte by byte from strangers keep nobody from sending over HTTP and AMQP.
func TestSlowBodiesOfStrangers(t *testing.T) {
	onClusters(t, func(a *attack) string {
		n, count := a.c.Nodes[0], size(100, 400)
		for i := range count {
			c := a.dial(n.AMQP)
			authorization := ""
			if i%2 == 0 {
				authorization = "Authorization: SharedAccessSignature sr=x&sig=eA==&se=99999999999&skn=x\r\n"
			}
			_, _ = io.WriteString(c, "POST /"+a.queue+"/messages HTTP/1.1\r\nHost: localhost\r\n"+authorization+"Content-Length: 1000000\r\n\r\n")
			go func() {
				for a.ctx.Err() == nil {
					if _, err := c.Write([]byte("x")); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}()
		}
		sends := size(20, 500)
		for i := range sends {
			if code, text, err := a.post(n, token()); code != 201 {
				a.Fatalf("send %d beside slow bodies: %d %s, %v", i, code, text, err)
			}
		}
		client, err := n.Client(false, azservicebus.RetryOptions{})
		a.must("client", err)
		r, err := client.NewReceiverForQueue(a.queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		a.must("receiver", err)
		for left := sends; left > 0; {
			got, err := r.ReceiveMessages(a.ctx, left, nil)
			a.must("receive", err)
			for _, m := range got {
				if string(m.Body) != "forged" {
					a.Errorf("%q was sent", m.Body)
				}
			}
			left -= len(got)
		}
		a.must("close", client.Close(a.ctx))
		a.empty(a.queue)
		return fmt.Sprintf("%d bodies, %d sends beside them", count, sends)
	})
}

// Bodies that arrive byte by byte, of a client with a key of one queue, as many as the node lets: a client with another key sends
// over HTTP all the same (F8).
func TestSlowBodiesOfAKey(t *testing.T) {
	onClusters(t, func(a *attack) string {
		n, count := a.c.Nodes[0], size(1_200, 2_500)
		key := newKey()
		a.keys(a.queue, key, newKey())
		head := "POST /" + a.queue + "/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: " +
			auth.NewToken("sb://localhost/"+a.queue, "app", key, time.Now().Add(time.Hour)) + "\r\nContent-Length: 1000000\r\n\r\nx"
		a.await("the node has no place for the key", func() bool { // again on a machine on which bodies end before so many are there
			for range count {
				if _, err := io.WriteString(a.dial(n.AMQP), head); err != nil {
					a.Fatal(err)
				}
			}
			refused, err := n.Metric(a.ctx, `busbar_rejections_total{site="http"}`)
			return err == nil && refused > 0
		})
		a.await("every socket has shown its token", func() bool { // a host has only so many that have not
			left, err := n.Metric(a.ctx, `busbar_limit_used{limit="unauthenticated"}`)
			return err == nil && left == 0
		})
		sends := size(5, 500)
		for i := range sends {
			if code, text, err := a.post(n, token()); code != 201 {
				a.Fatalf("send %d beside slow bodies: %d %s, %v", i, code, text, err)
			}
		}
		return fmt.Sprintf("%d bodies, %d sends beside them", count, sends)
	})
}

var errNoFrame = errors.New("no frame of a WebSocket")
