package main

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster/tick"
	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport/rest"
)

const (
	// alarmEvery is how often a node looks at itself.
	alarmEvery = time.Second
	// alarmPatience is how many looks in a row must fail for an alarm. An election takes a second or two.
	alarmPatience = 5
)

// alarms notes which checks fail for a while, and logs each beginning and end.
type alarms struct {
	look func() []partition.Check
	log  hclog.Logger

	mu      sync.Mutex
	failing map[string]int // looks in a row
	raised  []rest.Alarm   // in the order of the checks
}

func (a *alarms) run(ctx context.Context) {
	t := tick.Every(alarmEvery)
	defer t.Stop()
	for {
		a.step()
		select {
		case <-t.C:
			t.Next()
		case <-ctx.Done():
			return
		}
	}
}

// step looks once.
func (a *alarms) step() {
	checks := a.look()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raised = nil
	for _, c := range checks {
		before := a.failing[c.Name]
		if c.Err == nil {
			if before >= alarmPatience {
				a.log.Info("alarm ended", "alarm", c.Name)
			}
			delete(a.failing, c.Name)
			continue
		}
		a.failing[c.Name] = min(before+1, alarmPatience)
		if a.failing[c.Name] < alarmPatience {
			continue
		}
		if before < alarmPatience {
			a.log.Warn("alarm", "alarm", c.Name, "reason", c.Err)
		}
		a.raised = append(a.raised, rest.Alarm{Name: c.Name, Reason: c.Err.Error()})
	}
}

// list returns the alarms that are raised.
func (a *alarms) list() []rest.Alarm {
	if a == nil { // the node is still opening
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.raised
}

// healthView keeps the last answer. One request at a time asks the nodes.
type healthView struct {
	turn chan struct{}
	last *client.ClusterHealth
	at   time.Time
}

func newHealthView() healthView { return healthView{turn: make(chan struct{}, 1)} }
