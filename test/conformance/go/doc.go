// Command go runs every scenario that the Go SDK can do and prints one line for each:
//
//	scenario <tab> id <tab> pass|fail|skip <tab> milliseconds <tab> text
//
// It compiles against every version of versions.txt: run.sh chooses one by the module file of that
// version. With --list it prints the ids of the scenarios and ends.
package main
