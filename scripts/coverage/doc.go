// Command coverage writes docs/coverage.md: which tests speak of which statement of
// docs/spec/semantics.md. A test speaks of S-58 by naming it in a comment; a scenario of the
// client libraries by naming it in its line of test/conformance/scenarios.txt.
//
//	go run ./scripts/coverage         write the page
//	go run ./scripts/coverage -check  fail if the page is stale, or if docs/coverage-claimed.txt
//	                                  names a statement that no test speaks of
package main
