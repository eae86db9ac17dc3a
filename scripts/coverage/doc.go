// Command coverage writes docs/coverage.md: which tests speak of which statement of docs/spec/semantics.md. A test
// speaks of S-58 by naming it in a comment; a scenario of the client libraries by naming it in its line of
// test/conformance/scenarios.txt. It also writes docs/mission.md, which leads from each row of
// docs/spec/mission-rows.md to the tests of its statements, and to the examples that docs/examples/rows.txt names. Into docs/testing.md it writes the sizes that scenarios
// have in full and with -short.
//
//	go run ./scripts/coverage         write the page
//	go run ./scripts/coverage -check  fail if a page is stale, if docs/coverage-claimed.txt names a
//	                                  statement without a test, or if a row that binds the broker
//	                                  names a statement that is not claimed, or if docs/bugs.md
//	                                  names a test that does not exist, or if a row of guidance has
//	                                  neither an example nor a reason why not
package main
