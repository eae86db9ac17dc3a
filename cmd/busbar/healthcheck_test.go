package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// A probe without a shell tells alive from ready, by its exit code and a word.
func TestHealthCheckOfANode(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	for _, c := range []struct {
		flags []string
		want  string
	}{{nil, "alive\n"}, {[]string{"--ready"}, "ready\n"}} {
		out, code := execute(t, client.NewHealthCheckCommand(), "", append(c.flags, "--ops", l.opsHost())...)
		if code != 0 || out != c.want {
			t.Errorf("healthcheck %q: exit code %d: %q, want %q", c.flags, code, out, c.want)
		}
	}
}

// The probe needs no authority for a port that speaks TLS.
func TestHealthCheckOverTLS(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.OpsTLS = true }))
	out, code := execute(t, client.NewHealthCheckCommand(), "", "--ops", "https://"+l.opsHost())
	if code != 0 || out != "alive\n" {
		t.Errorf("exit code %d: %q", code, out)
	}
}

func TestHealthCheckFails(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"status":"not ready","reason":"partition 3 has no leader"}`))
	}))
	defer refuses.Close()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a node that is not ready":      {[]string{"--ready", "--ops", refuses.URL}, exit.Failed, "503: partition 3 has no leader"},
		"a node that does not answer":   {[]string{"--timeout", "20ms", "--ops", hangs.URL}, exit.Failed, context.DeadlineExceeded.Error()},
		"no node":                       {[]string{"--ops", closed.URL}, exit.Failed, "connection refused"},
		"an argument that it has not":   {[]string{"now"}, exit.Usage, "takes 0 arguments"},
		"an address that is no address": {[]string{"--ops", "http://%"}, exit.Usage, "%"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := execute(t, client.NewHealthCheckCommand(), "", c.args...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d: %q, want %d and %q", code, out, c.code, c.want)
			}
		})
	}
}
