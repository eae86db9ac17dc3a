package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/notify"
)

// serving is the status of a node that clients can use.
const serving = "serving clients"

// service tells systemd, if it has started the process, how the node is.
type service struct {
	send     func(lines ...string) error
	watchdog time.Duration // 0: none
	log      hclog.Logger
}

func newService(getenv func(string) (string, bool), pid int, log hclog.Logger) *service {
	socket, err := notify.Open(getenv, pid)
	if err != nil {
		log.Warn("systemd is told nothing", "error", err)
	}
	return &service{send: socket.Send, watchdog: socket.Watchdog(), log: log}
}

func (s *service) say(lines ...string) {
	if err := s.send(lines...); err != nil {
		s.log.Warn("systemd was not told", "lines", lines, "error", err)
	}
}

// watch tells twice in each period of the watchdog that the node lives, as long as its own check finds so. A node whose
// check fails or hangs is ended by systemd when the period is over.
func (s *service) watch(ctx context.Context, check func(context.Context) error) {
	if s.watchdog == 0 {
		return
	}
	half := s.watchdog / 2
	for sleep(ctx, half, nil) {
		limited, cancel := context.WithTimeout(ctx, half)
		err := check(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Error("the watchdog is not answered", "error", err)
		default:
			s.say(notify.Alive)
		}
	}
}

// alive returns why the node is not alive: its operations port does not answer, or its partitions. It asks nothing of other
// nodes, because a restart does not bring them back.
func (n *node) alive(ctx context.Context) error {
	answer := make(chan error, 1)
	go func() { // what hangs must not hang the watchdog
		_ = n.host.Status()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/livez", nil)
		if err != nil {
			answer <- err
			return
		}
		response, err := inside{n.ops.Handler}.RoundTrip(request)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("/livez answers %s", http.StatusText(response.StatusCode))
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return errors.New("the node does not answer itself in time")
	}
}
