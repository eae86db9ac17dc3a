package main

import (
	"context"
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
