// Package console is the web console of the operations port: pages for a browser, and the sessions of who signed in.
//
// The pages are files of this package, and a browser loads nothing else. They speak to the operations port by way of
// [Console]. The token of a session stays on the server, and goes with each request that is handed on. So a key may do
// through the console what it may do without, judged by the same code.
//
// The package never answers a request from another site, and never shows a key or a token to a page. It reads and changes
// nothing by itself: entities, messages and nodes are the business of the handlers behind it.
//
// Start with console.go, then session.go and forward.go.
package console
