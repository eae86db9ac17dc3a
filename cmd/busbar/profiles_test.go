package main

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
)

func TestProfilesStandBesideOperations(t *testing.T) {
	defer runtime.SetBlockProfileRate(0)
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(-1))
	h := withProfiles(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	for path, want := range map[string]int{
		"/debug/pprof/": http.StatusOK, "/debug/pprof/mutex": http.StatusOK,
		"/debug/pprof/block": http.StatusOK, "/debug/pprof/cmdline": http.StatusOK,
		"/debug/pprof/none": http.StatusNotFound, "/debug": http.StatusTeapot, "/livez": http.StatusTeapot,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s answered %d, want %d", path, w.Code, want)
		}
	}
	if runtime.SetMutexProfileFraction(-1) != mutexSample {
		t.Error("contended locks are not sampled")
	}
}
