//go:build sessionlist

package main

import "slices"

// The library lists sessions from version 1.11.
func sessionList(e *env) {
	q := e.sessionQueue("PT1M")
	e.send(0, q, inSession("a", "1"), inSession("b", "2"))
	r := e.accept(0, q, "c")
	e.must("set the state", r.SetSessionState(e.ctx, []byte("kept"), nil))
	var got []string
	for p := e.client(1).NewListSessionsForQueuePager(q, nil); p.More(); {
		page, err := p.NextPage(e.ctx)
		e.must("list", err)
		got = append(got, page.Sessions...)
	}
	slices.Sort(got)
	e.equal("sessions", got, []string{"a", "b", "c"})
}
