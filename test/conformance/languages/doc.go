// Package languages runs the scenarios of scenarios.txt with the client libraries of other languages
// and keeps docs/compatibility.md, the table of what came out.
//
// Each library has a folder beside this package with a run.sh, which installs what is missing and
// prints one line for each scenario. The library's own answers decide: nothing here knows AMQP.
//
//	go test ./languages                              the newest versions, plain port, one node
//	go test ./languages -args -versions=all -wires=plain,tls,websocket -nodes=1,3
//	go test ./languages -run '/python' -args -only 'defer peek'
//	go test ./languages -args -versions=all -write   and write docs/compatibility.md
//
// versions.txt says which versions there are, absent.txt what the older ones cannot express. Start with
// scenarios.txt and languages_test.go.
package languages
