package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

const (
	manyEntities = 1_000
	manyMessages = 1_000_000
	samplesEach  = 300
)

// Requests of the console with 1,000 entities and a million messages, with -long: what they take is logged for
// docs/console.md, and none fails. The page of all entities is looked at while it is so.
func TestAThousandEntitiesAndAMillionMessages(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: give -long")
	}
	c, err := cluster.Start(t.Context(), t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	node := c.Nodes[0]
	do := browserOf(t, node)
	fillMany(t, node, do)
	ask := func(path string) {
		if err := do("GET", path, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	paths := "path=large"
	for i := range 99 {
		paths += fmt.Sprintf("&path=queue-%03d", i)
	}
	for _, one := range []struct{ name, path string }{
		{"who is signed in", "session"},
		{"the page of entities, 50 with counts", "port/api/entities?top=50"},
		{"the last such page", "port/api/entities?top=50&skip=950"},
		{"the side, 100 without counts", "port/api/entities?top=100&counts=false"},
		{"a search", "port/api/entities?search=77&top=50"},
		{"what a stream asks, 100 entities", "port/api/entities?" + paths},
		{"50 messages", "port/api/entities/large/messages?max=50&state=active"},
		{"50 messages from the middle", "port/api/entities/large/messages?max=50&from=450000"},
		{"50 messages by a filter", "port/api/entities/large/messages?max=50&filter=n%20%25%2010%20%3D%207"},
		{"locks", "port/api/entities/large/locks?max=100"},
		{"dead letters by reason", "port/api/entities/large/reasons?max=1000"},
		{"a description", "port/api/entities/large/description"},
		{"the cluster", "port/api/cluster"},
		{"its health", "port/api/health/cluster"},
	} {
		took := make([]time.Duration, samplesEach)
		for i := range took {
			began := time.Now()
			ask(one.path)
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		t.Logf("| %s | %v | %v |", one.name, took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond))
	}
	d := sit(t, node)
	d.signIn()
	began := time.Now()
	d.do(d.goes("#/"), d.sees("1 to 50 of 1,001"), d.press("Next"), d.sees("51 to 100 of 1,001"), d.fill("Search by name", "queue-77"), d.sees("1 to 10 of 10"))
	d.do(d.goes("#/entity/large/messages"), d.sees("50 messages shown"), d.press("Show more"), d.sees("100 messages shown"))
	t.Logf("a walk over these pages: %v", time.Since(began).Round(time.Millisecond))
}

// browserOf returns what asks the console as a page does, with the session of somebody who signed in.
func browserOf(t *testing.T, node *cluster.Node) func(method, path, kind, body string) error {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	_, ops := node.Doors()
	home := "http://" + ops
	do := func(method, path, kind, body string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, home+"/$console/"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Origin", home)
		r.Header.Set("Content-Type", kind)
		res, err := client.Do(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 300 {
			return fmt.Errorf("%s: %d %w %.200s", path, res.StatusCode, err, text)
		}
		return nil
	}
	if err := do("POST", "session", "application/json", `{"development":true}`); err != nil {
		t.Fatal(err)
	}
	return do
}

// fillMany makes the entities, and sends the messages: nine of ten to one queue.
func fillMany(t *testing.T, node *cluster.Node, do func(method, path, kind, body string) error) {
	t.Helper()
	a, err := node.Admin(false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateQueue(t.Context(), "large", nil); err != nil {
		t.Fatal(err)
	}
	each(t, manyEntities, func(ctx context.Context, i int) error {
		_, err := a.CreateQueue(ctx, fmt.Sprintf("queue-%03d", i), nil)
		return err
	})
	each(t, manyEntities, func(_ context.Context, i int) error {
		for queue, n := range map[string]int{"large": manyMessages * 9 / 10 / manyEntities, fmt.Sprintf("queue-%03d", i): manyMessages / 10 / manyEntities} {
			var all []string
			for k := range n {
				all = append(all, fmt.Sprintf(`{"Body":"{\"order\": %d}","UserProperties":{"n":%d}}`, k, k))
			}
			if err := do("POST", "port/"+queue+"/messages", "application/vnd.microsoft.servicebus.json", "["+strings.Join(all, ",")+"]"); err != nil {
				return err
			}
		}
		return nil
	})
}

// each does something so often, some at a time.
func each(t *testing.T, times int, f func(context.Context, int) error) {
	t.Helper()
	places := make(chan struct{}, 4)
	var wg sync.WaitGroup
	for i := range times {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := f(t.Context(), i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
