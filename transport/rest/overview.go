package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// OverviewPath is where the operations port lists entities with their counts, as JSON.
const OverviewPath = "/api/entities"

const (
	// overviewPage is how many entities a page holds unless it is said otherwise, maxOverviewPage what it may hold.
	overviewPage    = 100
	maxOverviewPage = 1_000
	// maxOverviewPaths bounds the entities that a request names.
	maxOverviewPaths = 200
	// overviewPatience is how long the counts of an entity are waited for. While a partition has no leader, a list is
	// better without some counts than late.
	overviewPatience = 2 * time.Second
)

// EntityRow is an entity in a list for people.
type EntityRow struct {
	Name            string `json:"name"`
	Kind            string `json:"kind"`
	Status          string `json:"status"`
	Suspended       bool   `json:"suspended,omitempty"` // by an operator
	RequiresSession bool   `json:"requiresSession,omitempty"`
	Partitioned     bool   `json:"partitioned,omitempty"`
	ForwardTo       string `json:"forwardTo,omitempty"`
	// Subscriptions are how many a topic has, Rules how many a subscription has.
	Subscriptions int `json:"subscriptions,omitempty"`
	Rules         int `json:"rules,omitempty"`
	// Counts is absent if nobody asked for it or no share answered. Complete says that all shares did.
	Counts   *EntityTotals `json:"counts,omitempty"`
	Complete bool          `json:"complete"`
	// Missing says that an entity that the request names is not there.
	Missing bool `json:"missing,omitempty"`
}

// EntityTotals are the counts of an entity over all its shares.
type EntityTotals struct {
	Active             uint64 `json:"active"`
	DeadLetter         uint64 `json:"deadLetter"`
	Scheduled          uint64 `json:"scheduled"`
	Deferred           uint64 `json:"deferred"`
	Locked             uint64 `json:"locked"`
	Transfer           uint64 `json:"transfer"`
	TransferDeadLetter uint64 `json:"transferDeadLetter"`
	Sessions           uint64 `json:"sessions"`
	SizeBytes          uint64 `json:"sizeBytes"`
}

// Overview is a page of entities. Total counts those that the request is about, Next is where to go on, 0 at the end.
type Overview struct {
	Entities []EntityRow `json:"entities"`
	Total    int         `json:"total"`
	Next     int         `json:"next,omitempty"`
}

var kindWords = map[fsm.EntityKind]string{fsm.Queue: "queue", fsm.Topic: "topic", fsm.Subscription: "subscription"}

// serveOverview lists queues and topics by name, or the subscriptions of a topic, or the entities that are named.
func (a *API) serveOverview(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := a.timeout(r)
	defer cancel()
	view, err := a.overview(ctx, r)
	if err != nil {
		p := asProblem(err)
		mark := note(a.deps.Refusals, p, r, "")
		switch p.status {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", `SharedAccessSignature realm="namespace"`)
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "1")
		}
		writeJSON(w, r, p.status, operatorError{Error: p.text, Code: mark.Code.String(), TrackingID: mark.ID,
			Retriable: mark.Code.Retriable(), Timestamp: mark.At})
		return
	}
	writeJSON(w, r, http.StatusOK, view)
}

func (a *API) overview(ctx context.Context, r *http.Request) (*Overview, error) {
	claim, err := a.authenticate(r)
	if err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("The query cannot be decoded: %v.", err)
	}
	q := &inspection{ctx: ctx, http: r, values: values, claim: claim}
	if values.Has("path") {
		return a.overviewOf(q)
	}
	if err := q.only("kind", "topic", "search", "skip", "top", "counts"); err != nil {
		return nil, err
	}
	skip, err := q.number("skip", 0, 0, 1<<31)
	if err != nil {
		return nil, err
	}
	top, err := q.number("top", overviewPage, 1, maxOverviewPage)
	if err != nil {
		return nil, err
	}
	counts := values.Get("counts")
	if counts != "" && counts != "true" && counts != "false" {
		return nil, badRequest("counts must be true or false, not '%s'.", clip(counts))
	}
	found, err := a.overviewList(q)
	if err != nil {
		return nil, err
	}
	out := &Overview{Total: len(found)}
	found = found[min(int(skip), len(found)):]
	if len(found) > int(top) {
		found, out.Next = found[:top], int(skip+top)
	}
	out.Entities, err = a.rows(ctx, found, counts != "false")
	return out, err
}

// overviewList finds what a list is about, before its page is cut out.
func (a *API) overviewList(q *inspection) (found []*fsm.Descriptor, err error) {
	search := strings.ToLower(q.values.Get("search"))
	switch kind := q.values.Get("kind"); {
	case q.values.Has("topic"):
		found, err = a.subscriptionsOf(q)
	case !q.claim.Allows("", auth.Manage):
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForRead}
	case kind == "queue":
		found, err = a.deps.Entities.List(q.ctx, fsm.Queue, 0, -1)
	case kind == "topic":
		found, err = a.deps.Entities.List(q.ctx, fsm.Topic, 0, -1)
	case kind == "":
		var topics []*fsm.Descriptor
		if found, err = a.deps.Entities.List(q.ctx, fsm.Queue, 0, -1); err == nil {
			topics, err = a.deps.Entities.List(q.ctx, fsm.Topic, 0, -1)
		}
		found = append(found[:len(found):len(found)], topics...)
	default:
		return nil, badRequest("kind must be queue or topic, not '%s'.", clip(kind))
	}
	if err != nil || search == "" {
		return found, err
	}
	var hits []*fsm.Descriptor
	for _, d := range found {
		if strings.Contains(strings.ToLower(d.Name), search) {
			hits = append(hits, d)
		}
	}
	return hits, nil
}

// subscriptionsOf lists the subscriptions of a topic.
func (a *API) subscriptionsOf(q *inspection) ([]*fsm.Descriptor, error) {
	name := q.values.Get("topic")
	if !q.claim.Allows(name, auth.Manage) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForRead}
	}
	topic, err := a.deps.Entities.Get(q.ctx, name)
	switch {
	case errors.Is(err, fsm.ErrNoEntity):
		return nil, &problem{status: http.StatusNotFound, text: fmt.Sprintf("There is no topic %q.", clip(name))}
	case err != nil:
		return nil, err
	case topic.Kind != fsm.Topic:
		return nil, badRequest("%s is no topic.", topic.Name)
	}
	return a.deps.Topics.Subscriptions(q.ctx, topic, 0, -1)
}

// overviewOf tells of the entities that a request names; one that is not there has a row, too.
func (a *API) overviewOf(q *inspection) (*Overview, error) {
	for name := range q.values {
		if name != "path" {
			return nil, badRequest("path stands alone, without '%s'.", clip(name))
		}
	}
	paths := q.values["path"]
	if len(paths) > maxOverviewPaths {
		return nil, badRequest("%d paths are named, the limit is %d.", len(paths), maxOverviewPaths)
	}
	for _, path := range paths {
		if !q.claim.Allows(path, auth.Manage) {
			return nil, &problem{status: http.StatusUnauthorized, text: claimsForRead}
		}
	}
	found, err := a.deps.Entities.Some(q.ctx, paths)
	if err != nil {
		return nil, err
	}
	all := make([]EntityRow, len(paths))
	someAtOnce(len(paths), func(i int) {
		if found[i] == nil {
			all[i] = EntityRow{Name: paths[i], Missing: true}
			return
		}
		all[i] = a.row(q.ctx, found[i], true)
	})
	return &Overview{Entities: all, Total: len(all)}, q.ctx.Err()
}

// someAtOnce calls f for each number below n, countsAtOnce at a time, and returns when all have returned.
func someAtOnce(n int, f func(int)) {
	tokens := make(chan struct{}, countsAtOnce)
	var wg sync.WaitGroup
	for i := range n {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			f(i)
		})
	}
	wg.Wait()
}

// rows asks for what is not in the descriptions, for some entities at a time.
func (a *API) rows(ctx context.Context, found []*fsm.Descriptor, counts bool) ([]EntityRow, error) {
	all := make([]EntityRow, len(found))
	someAtOnce(len(found), func(i int) { all[i] = a.row(ctx, found[i], counts) })
	return all, ctx.Err()
}

func (a *API) row(ctx context.Context, d *fsm.Descriptor, counts bool) EntityRow {
	row := EntityRow{Name: d.Name, Kind: kindWords[d.Kind], Status: statuses[d.Status], Suspended: d.Suspended,
		RequiresSession: d.RequiresSession, Partitioned: d.Partitioned, ForwardTo: d.ForwardTo, Rules: len(d.Rules)}
	if d.Kind == fsm.Topic {
		if all, err := a.deps.Topics.Subscriptions(ctx, d, 0, -1); err == nil {
			row.Subscriptions = len(all)
		}
	}
	if !counts {
		return row
	}
	ctx, cancel := context.WithTimeout(ctx, overviewPatience)
	defer cancel()
	sum, complete, err := a.deps.Cluster.Counts(ctx, d)
	if err != nil {
		return row
	}
	row.Complete = complete
	row.Counts = &EntityTotals{Active: sum.Active, DeadLetter: sum.DeadLetter, Scheduled: sum.Scheduled, Deferred: sum.Deferred,
		Locked: sum.Locked, Transfer: sum.Transfer, TransferDeadLetter: sum.TransferDeadLetter, Sessions: sum.Sessions,
		SizeBytes: sum.SizeBytes}
	return row
}
