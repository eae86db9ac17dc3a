package busbartest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The key of a broker for development, which everybody knows.
const (
	keyName = "RootManageSharedAccessKey"
	key     = "SAS_KEY_VALUE"
)

// made counts the names that this process has given.
var made atomic.Int64

// Queue makes a queue and returns its name: the prefix and a number, so tests that run at a time do not meet. The
// properties have the names of the management API, such as LockDuration: "PT5S".
func (b *Broker) Queue(tb testing.TB, prefix string, properties map[string]any) string {
	tb.Helper()
	name := fmt.Sprintf("%s-%d", prefix, made.Add(1))
	b.make(tb, name, "QueueDescription", properties)
	return name
}

// Topic makes a topic with subscriptions that get every message, and returns its name. The name is made as that of a queue.
func (b *Broker) Topic(tb testing.TB, prefix string, subscriptions ...string) string {
	tb.Helper()
	name := fmt.Sprintf("%s-%d", prefix, made.Add(1))
	b.make(tb, name, "TopicDescription", nil)
	for _, s := range subscriptions {
		b.make(tb, name+"/subscriptions/"+s, "SubscriptionDescription", nil)
	}
	return name
}

func (b *Broker) make(tb testing.TB, path, kind string, properties map[string]any) {
	tb.Helper()
	var inner strings.Builder
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&inner, "<%s>%s</%s>", name, escape.Replace(fmt.Sprint(properties[name])), name)
	}
	made, err := b.ask(tb.Context(), http.MethodPut, "/"+path+"?api-version=2021-05", `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">`+
		`<`+kind+` xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">`+inner.String()+`</`+kind+`></content></entry>`)
	if err != nil {
		tb.Fatal(err)
	}
	for name := range properties { // the service ignores what it does not know, and a test would not notice
		if !strings.Contains(made, "<"+name+">") {
			tb.Fatalf("busbartest: a %s has no property %s; options of Busbar go into the file of entities", kind, name)
		}
	}
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// ask sends a request to the operations port, and returns the answer.
func (b *Broker) ask(ctx context.Context, method, path, body string) (answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, b.Operations+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", token(b.Operations, time.Now().Add(time.Hour)))
	r.Header.Set("Content-Type", "application/atom+xml")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return "", err
	}
	if got.StatusCode > 299 {
		return "", fmt.Errorf("%s %s: %s: %s", method, path, got.Status, text)
	}
	return string(text), nil
}

// token signs a shared access signature for the whole broker.
func token(of string, until time.Time) string {
	signed := fmt.Sprintf("%s\n%d", url.QueryEscape(of), until.Unix())
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(signed))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", url.QueryEscape(of),
		url.QueryEscape(base64.StdEncoding.EncodeToString(h.Sum(nil))), until.Unix(), keyName)
}
