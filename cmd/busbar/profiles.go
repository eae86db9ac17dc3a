package main

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"strings"
)

// profilesPath is where the operations port has the profiles.
const profilesPath = "/debug/pprof/"

// The samples of --pprof: one contended unlock of mutexSample, and one wait for every blockSample nanoseconds of
// waiting. Both cost well below a hundredth of a busy broker.
const (
	mutexSample = 100
	blockSample = 100_000
)

// withProfiles adds the profiles of this process, and begins to sample locks and waits. Profiles
// tell addresses and the command line and cost CPU, so they are off unless asked for.
func withProfiles(next http.Handler) http.Handler {
	runtime.SetMutexProfileFraction(mutexSample)
	runtime.SetBlockProfileRate(blockSample)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, profilesPath)
		switch {
		case !ok:
			next.ServeHTTP(w, r)
		case name == "profile":
			pprof.Profile(w, r)
		case name == "trace":
			pprof.Trace(w, r)
		case name == "cmdline":
			pprof.Cmdline(w, r)
		case name == "symbol":
			pprof.Symbol(w, r)
		default:
			pprof.Index(w, r)
		}
	})
}
