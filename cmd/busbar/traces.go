package main

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/tracing"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport"
)

// traceClose bounds how long a node that stops waits for the collector to take its last spans.
const traceClose = 2 * time.Second

// openTraces has the spans of messages sent to a collector, if the environment names one (decision 0096).
func (n *node) openTraces(ctx context.Context, front *transport.Config) error {
	t, err := tracing.Open(ctx, n.cfg.NodeName, version, n.log.Named("traces"))
	if err != nil || t == nil {
		return err
	}
	n.onClose(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, traceClose)
		defer cancel()
		if err := t.Close(ctx); err != nil { // a collector that is away keeps no node from stopping
			n.log.Warn("the last traces are lost", "error", err)
		}
		return nil
	})
	front.OnSpan = t.Span
	n.router.OnForwarded(func(f *partition.Forwarded) {
		from := n.entityName(f.From)
		if f.Sub != fsm.Main {
			from += "/" + f.Sub.String()
		}
		t.Forwarded(f.Body, from, n.entityName(f.To), f.Taken, transport.CodeOf(f.Refusal))
	})
	return nil
}

// entityName is what this node's copy of the catalog calls an entity, "" if it has none of that id.
func (n *node) entityName(id fsm.EntityID) string {
	if d := (&status{n}).catalog().ByID(id); d != nil {
		return d.Name
	}
	return ""
}
