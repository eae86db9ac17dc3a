package rest

import (
	"net/http"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// listEntities answers one page, by name. Clients differ in how they find the next one: by a link,
// by a page that is full, or by asking until a page is empty; so past the end is an empty feed.
func (a *API) listEntities(q *request) (*answer, error) {
	if !q.claim.Allows(q.where.path, auth.Manage) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForRead}
	}
	if q.query.err != nil {
		return nil, q.query.err
	}
	kind, title := fsm.Queue, "Queues"
	if q.where.kind == routeTopics {
		kind, title = fsm.Topic, "Topics"
	}
	// One more than the page tells whether there is another.
	found, err := a.deps.Entities.List(q.ctx, kind, q.query.skip, q.query.top+1)
	if err != nil {
		return nil, err
	}
	if kind == fsm.Topic && len(found) > 0 {
		return nil, notImplemented(topicsAndBelow)
	}
	more := len(found) > q.query.top
	if more {
		found = found[:q.query.top]
	}
	counts, err := a.countAll(q, found)
	if err != nil {
		return nil, err
	}
	return &answer{
		status: http.StatusOK, contentType: feedType, body: a.feed(q, title, found, counts, more),
	}, nil
}

// countAll asks for the counters of a page. What is not complete is nil, as in getEntity.
func (a *API) countAll(q *request, page []*fsm.Descriptor) ([]*fsm.EntityCounts, error) {
	counts := make([]*fsm.EntityCounts, len(page))
	errs := make([]error, len(page))
	tokens := make(chan struct{}, countsAtOnce)
	var wg sync.WaitGroup
	for i, d := range page {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			c, complete, err := a.deps.Cluster.Counts(q.ctx, d)
			if complete && err == nil {
				counts[i] = &c
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if q.query.enrich {
		for i, c := range counts {
			if c == nil {
				return nil, countless(errs[i])
			}
		}
	}
	return counts, nil
}

// namespaceInfo is open to any policy of the namespace.
func (a *API) namespaceInfo(q *request) (*answer, error) {
	if !q.claim.AllowsAny(q.where.path, auth.All) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForRead}
	}
	return &answer{status: http.StatusOK, contentType: entryType, body: a.namespaceEntry(q)}, nil
}
