package main

import (
	"io"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// lifeSignals are the signals that a node answers.
func lifeSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }

// inputEnded stands for a signal when standard input ends.
type inputEnded struct{}

func (inputEnded) Signal()        {}
func (inputEnded) String() string { return "end of standard input" }

// signalEnd waits for the end of an input, which the program that started this one holds open while it lives.
func signalEnd(of io.Reader, signals chan<- os.Signal) {
	_, _ = io.Copy(io.Discard, of) // a fault is an end, too
	signals <- inputEnded{}
}

// ending ends the process. The first signal asks for an orderly stop; a second one ends the process at once, and so does
// a stop that takes longer than stopBound.
type ending struct {
	signals <-chan os.Signal
	stop    func()          // begins the orderly stop
	begun   <-chan struct{} // closed when an orderly stop has begun, also that of a node that has failed
	reload  chan<- struct{} // holds one; SIGHUP asks for a reload
	exit    func(code int)
	log     hclog.Logger
}

// run answers signals until done is closed.
func (e *ending) run(done <-chan struct{}) {
	var late <-chan time.Time
	begun, asked := e.begun, false
	for {
		select {
		case <-done:
			return
		case <-begun:
			if begun = nil; late == nil {
				late = time.After(stopBound)
			}
		case <-late:
			e.log.Error("the stop takes too long: the process ends at once", "bound", stopBound)
			e.exit(exit.CutOff)
			return
		case s := <-e.signals:
			switch {
			case s == syscall.SIGHUP && late == nil:
				select {
				case e.reload <- struct{}{}:
				default: // one is to come, which reads what is there now
				}
			case s == syscall.SIGHUP:
				e.log.Info("the configuration is not read again: the node is stopping")
			case !asked:
				e.log.Info("stopping; another signal ends the process at once", "signal", s.String())
				if asked = true; late == nil {
					late = time.After(stopBound)
				}
				e.stop()
			default:
				e.log.Error("a second signal: the process ends at once", "signal", s.String())
				e.exit(exit.CutOff)
				return
			}
		}
	}
}
