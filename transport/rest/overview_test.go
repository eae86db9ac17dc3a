package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// The list of entities for people: by kind, by a part of the name, below a topic, and page by page.
func TestTheOverviewListsEntities(t *testing.T) {
	h := newHouse(t)
	for n := range 25 {
		h.create(t, fmt.Sprintf("orders-%02d", n), "")
	}
	operations := h.api.Operations()
	h.handler = operations
	if code, text := h.do(t, "PUT", "/trade?api-version=2021-05", entryBody("TopicDescription", "")); code != 201 {
		t.Fatalf("a topic: %d %s", code, text)
	}
	if code, text := h.do(t, "PUT", "/trade/Subscriptions/eu?api-version=2021-05", entryBody("SubscriptionDescription", "")); code != 201 {
		t.Fatalf("a subscription: %d %s", code, text)
	}
	ask := func(query string) (v Overview) {
		t.Helper()
		code, text := h.do(t, "GET", OverviewPath+query, "")
		if code != 200 || json.Unmarshal([]byte(text), &v) != nil {
			t.Errorf("%s: %d %s", query, code, text)
		}
		return v
	}
	names := func(v Overview) string {
		var all []string
		for _, e := range v.Entities {
			all = append(all, e.Name)
		}
		return strings.Join(all, " ")
	}
	if v := ask(""); v.Total != 26 || len(v.Entities) != 26 || v.Next != 0 || v.Entities[0].Counts == nil || !v.Entities[0].Complete {
		t.Errorf("all: %+v", v)
	}
	if v := ask("?kind=topic&counts=false"); names(v) != "trade" || v.Entities[0].Subscriptions != 1 || v.Entities[0].Counts != nil || v.Entities[0].Kind != "topic" {
		t.Errorf("topics: %+v", v)
	}
	if v := ask("?kind=queue&skip=10&top=3"); names(v) != "orders-10 orders-11 orders-12" || v.Next != 13 || v.Total != 25 {
		t.Errorf("a page: %+v", v)
	}
	if v := ask("?search=ERS-1&top=4&skip=8"); names(v) != "orders-18 orders-19" || v.Next != 0 || v.Total != 10 {
		t.Errorf("a search: %+v", v)
	}
	if v := ask("?topic=trade"); names(v) != "trade/Subscriptions/eu" || v.Entities[0].Rules != 1 || v.Entities[0].Kind != "subscription" {
		t.Errorf("subscriptions: %+v", v)
	}
	if v := ask("?skip=1000"); len(v.Entities) != 0 || v.Total != 26 {
		t.Errorf("behind the end: %+v", v)
	}
	if v := ask("?path=orders-03&path=nobody&path=TRADE"); names(v) != "orders-03 nobody trade" || !v.Entities[1].Missing || v.Entities[2].Missing {
		t.Errorf("named ones: %+v", v)
	}
	for query, want := range map[string]int{"?kind=rule": 400, "?top=0": 400, "?top=1001": 400, "?skip=x": 400, "?counts=maybe": 400, "?topic=nobody": 404,
		"?topic=orders-01": 400, "?colour=red": 400, "?path=a&kind=queue": 400, "?" + strings.Repeat("path=a&", maxOverviewPaths+1): 400, "?top=1&top=2": 400, "?%zz": 400} {
		if code, text := h.do(t, "GET", OverviewPath+query, ""); code != want || !strings.Contains(text, `"error"`) {
			t.Errorf("%.40s: %d %s", query, code, text)
		}
	}
}

// The list needs Manage on the namespace, that of one topic or entity Manage on it.
func TestTheOverviewNeedsManage(t *testing.T) {
	h := newHouse(t)
	h.create(t, "orders", "")
	h.create(t, "bills", "")
	h.handler = h.api.Operations()
	url := "https://host.test/"
	for name, c := range map[string]struct {
		token, query string
		want         int
	}{
		"nobody":                   {"", "", 401},
		"root":                     {token(root, rootKey, url), "", 200},
		"root for one":             {token(root, rootKey, url+"orders"), "", 401},
		"root for one, that one":   {token(root, rootKey, url+"orders"), "?path=orders", 200},
		"root for one, another":    {token(root, rootKey, url+"orders"), "?path=bills", 401},
		"root for one, both":       {token(root, rootKey, url+"orders"), "?path=orders&path=bills", 401},
		"root for one, none":       {token(root, rootKey, url+"orders"), "?path=nobody", 401},
		"a wrong key":              {token(root, "x", url), "?path=orders", 401},
		"a topic that is not open": {token(root, rootKey, url+"orders"), "?topic=trade", 401},
	} {
		if code, text := h.do(t, "GET", OverviewPath+c.query, "", "Authorization", c.token); code != c.want {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}

// While a share does not answer, its entity is listed without its counts.
func TestTheOverviewStandsASilentPartition(t *testing.T) {
	h := newHouse(t)
	h.create(t, "orders", "")
	h.handler = h.api.Operations()
	h.incomplete = true
	code, text := h.do(t, "GET", OverviewPath, "")
	if code != 200 || strings.Contains(text, `"counts"`) || !strings.Contains(text, `"complete":false`) {
		t.Errorf("%d %s", code, text)
	}
}
