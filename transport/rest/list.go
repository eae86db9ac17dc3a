package rest

import (
	"net/http"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// listEntities answers one page, by name. Clients differ in how they find the next one. They go by a link, by a page
// that is full, or ask until a page is empty; so past the end is an empty feed.
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
	return a.pageOf(q, title, "$Resources/"+title, found)
}

// pageOf answers with a page of entities. found may hold one more than the page does.
func (a *API) pageOf(q *request, title, path string, found []*fsm.Descriptor) (*answer, error) {
	more := len(found) > q.query.top
	if more {
		found = found[:q.query.top]
	}
	all, err := a.lookAtAll(q, found)
	if err != nil {
		return nil, err
	}
	return a.feed(q, listing{title: title, path: path, count: len(all), more: more,
		write: func(p *page, i int) { a.writeEntry(p, q, all[i]) }}), nil
}

// lookAtAll asks for what is not in the descriptions of a page.
func (a *API) lookAtAll(q *request, found []*fsm.Descriptor) ([]*shown, error) {
	all := make([]*shown, len(found))
	errs := make([]error, len(found))
	tokens := make(chan struct{}, countsAtOnce)
	var wg sync.WaitGroup
	for i, d := range found {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			all[i], errs[i] = a.look(q, d)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// namespaceInfo is open to any policy of the namespace.
func (a *API) namespaceInfo(q *request) (*answer, error) {
	if !q.claim.AllowsAny(q.where.path, auth.All) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForRead}
	}
	return &answer{status: http.StatusOK, contentType: entryType, body: a.namespaceEntry(q)}, nil
}
