// Package model is a second broker: slow, obvious and written from the specification alone, with
// slices and linear scans where package fsm has tables. A driver sends the same random entries to
// both and compares everything that can be seen; `go test ./model -seed=N -sequences=1` repeats
// one run exactly, and `-timeout 0 -for=1h` goes on with seed after seed for an hour.
//
// The model draws no tokens: it takes over those that the state machine gave and checks that they
// are new. It must never import more of the project than the words of package fsm.
package model
