package acted

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	core "k8s.io/api/core/v1"
)

// verdict counts the results of one probe as the kubelet does: a result counts when it has come often enough in a row.
type verdict struct {
	failures, successes int // in a row that turn the result
	ok                  bool
	last                bool
	run                 int
}

// add takes a result and reports whether the verdict has turned to it. The first verdict of a probe may be the one that
// it began with, and turns nothing.
func (v *verdict) add(ok bool) (turned bool) {
	if ok != v.last || v.run == 0 {
		v.last, v.run = ok, 0
	}
	v.run++
	if ok && v.run < v.successes || !ok && v.run < v.failures || ok == v.ok {
		return false
	}
	v.ok = ok
	return true
}

// probe is a probe of the manifest with the defaults of Kubernetes filled in.
type probe struct {
	delay, period, timeout time.Duration
	verdict                verdict
	ask                    func(context.Context) error
}

// newProbe reads a probe of the manifest for a container at an address. begins is the verdict before the first result.
func newProbe(p *core.Probe, c *core.Container, host string, begins bool) (*probe, error) {
	if p == nil || p.HTTPGet == nil {
		return nil, fmt.Errorf("container %s: a probe that is no httpGet is not played", c.Name)
	}
	port, err := portOf(c, p.HTTPGet.Port.String())
	if err != nil {
		return nil, err
	}
	or := func(given, otherwise int32) int32 {
		if given == 0 {
			return otherwise
		}
		return given
	}
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	url := "http://" + net.JoinHostPort(host, strconv.Itoa(int(port))) + p.HTTPGet.Path
	return &probe{
		delay: seconds(p.InitialDelaySeconds), period: seconds(or(p.PeriodSeconds, 10)), timeout: seconds(or(p.TimeoutSeconds, 1)),
		verdict: verdict{failures: int(or(p.FailureThreshold, 3)), successes: int(or(p.SuccessThreshold, 1)), ok: begins},
		ask:     func(ctx context.Context) error { return get(ctx, url) },
	}, nil
}

// portOf finds a port of a container by its name or number.
func portOf(c *core.Container, name string) (int32, error) {
	for _, p := range c.Ports {
		if p.Name == name || strconv.Itoa(int(p.ContainerPort)) == name {
			return p.ContainerPort, nil
		}
	}
	return 0, fmt.Errorf("container %s has no port %s", c.Name, name)
}

// run probes until ctx ends, at once and then once a period. It calls turned with each change of the verdict.
func (p *probe) run(ctx context.Context, turned func(ok bool, reason error)) {
	if !pause(ctx, p.delay) {
		return
	}
	tick := time.NewTicker(p.period)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, p.timeout)
		err := p.ask(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if p.verdict.add(err == nil) {
			turned(err == nil, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pause waits and reports whether ctx lets it.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// The kubelet makes a connection for each probe.
var prober = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// get is an httpGet of the kubelet: everything from 200 to 399 is a success.
func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := prober.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 10<<10))
	if err != nil {
		return err
	}
	if res.StatusCode < http.StatusOK || res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", res.Status, body)
	}
	return nil
}
