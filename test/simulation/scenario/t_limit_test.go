package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/test/simulation"
)

// exhausted checks that the catalog refused a step because a limit is reached.
func (b *bench) exhausted(what string, err error) {
	b.Helper()
	var refused *fsm.RefusedError
	if !errors.As(err, &refused) || refused.Refusal != fsm.QuotaExceeded {
		b.Fatalf("%s: %v, want QuotaExceeded", what, err)
	}
}

func (c *client) tryRule(subscription, name string, description map[string]any) error {
	_, err := c.tryAsk(subscription, "add-rule", map[string]any{"rule-name": name, "rule-description": description})
	return err
}

func sqlFilter(expression string) map[string]any {
	return map[string]any{"sql-filter": map[string]any{"expression": expression}}
}

// T-210; S-229: the limits of the catalog, whichever node is asked and whoever leads.
func TestT210WhatANamespaceHolds(t *testing.T) {
	limits := catalog.Limits{Entities: 5, Subscriptions: 3, SQLFilters: 2, CorrelationFilters: 2, RuleChars: 20}
	on(t, simulation.LabConfig{Limits: limits}, func(b *bench) {
		b.topic("t", "a", "b", "c")
		asTopic := func(d *fsm.Descriptor) { d.Kind = fsm.Topic }
		asSubscription := func(d *fsm.Descriptor) { d.Kind = fsm.Subscription }
		c := b.client()
		for i := range 2 {
			b.must("SQL filter", c.tryRule(subA, fmt.Sprint("sql", i), sqlFilter("a = 1")))
			b.must("correlation filter", c.tryRule([]string{subA, subB}[i], fmt.Sprint("correlation", i),
				map[string]any{"correlation-filter": map[string]any{"label": "x"}}))
		}
		b.topic("other")
		for leader := range b.lab.Nodes() {
			b.must("lead", b.lab.Lead(fsm.CatalogPartition, leader))
			b.must("delete", b.lab.Directory(leader).Delete(b.ctx, "other"))
			_, err := b.tryQueue("t/Subscriptions/d", asSubscription)
			b.exhausted("the fourth subscription", err)
			b.topic("other")
			b.refused("the third SQL filter", c.tryRule(subB, "more", sqlFilter("a = 1")), quotaExceeded)
			b.refused("the third correlation filter", c.tryRule(subC, "more",
				map[string]any{"correlation-filter": map[string]any{"label": "x"}}), quotaExceeded)
			_, err = b.tryQueue("more")
			b.exhausted("the sixth entity", err)
			_, err = b.tryQueue("more", asTopic)
			b.exhausted("the sixth entity", err)
			_, err = b.tryQueue("other/Subscriptions/more", asSubscription)
			b.exhausted("the sixth entity", err)
		}
		c.dropRule(subA, "sql0")
		c.dropRule(subA, "sql1")
		filter := "a = '" + strings.Repeat("é", 14) + "'" // 20 characters
		b.refused("a filter of 21 characters", c.tryRule(subA, "long", sqlFilter(filter+" ")), quotaExceeded)
		b.must("a filter of 20 characters", c.tryRule(subA, "fits", sqlFilter(filter)))
		acting := sqlFilter("a = 1")
		acting["sql-rule-action"] = map[string]any{"expression": "SET a = '1234567890a'"}
		b.refused("an action of 21 characters", c.tryRule(subA, "acting", acting), quotaExceeded)
		acting["sql-rule-action"] = map[string]any{"expression": "SET a = '1234567890'"}
		b.must("an action of 20 characters", c.tryRule(subA, "acting", acting))
		b.must("delete", b.lab.Directory(b.node()).Delete(b.ctx, "other"))
		b.queue("in its place")
	})
}

// T-210; S-229
func TestT210AFilterOfMoreCharactersThanTheLanguageTakes(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a")
		c := b.client()
		text := "a = '" + strings.Repeat("x", 1018) + "'"
		b.must("1024 characters", c.tryRule(subA, "fits", sqlFilter(text)))
		b.refused("1025 characters", c.tryRule(subA, "long", sqlFilter(text+" ")), quotaExceeded)
	})
}

// T-210; S-229
func TestT210ATransactionSendsSoManyMessages(t *testing.T) {
	on(t, simulation.LabConfig{TransactionMessages: 3}, func(b *bench) {
		b.queue("q")
		d := b.dealer()
		x := d.begin()
		for i := range 3 {
			x.send("q", message(fmt.Sprint(i)))
		}
		b.refused("the fourth", x.trySend("q", message("one too many")), quotaExceeded)
		x.commit()
		want(b, "stored", b.counts("q").Active, 3)
	})
}

// T-210; S-229, S-230: as many receives of an entity as may be under way at a time, over all nodes; the
// next one is refused, and has a place when another one has got something or has gone.
func TestT210AnEntityHasSoManyReceivesAtATime(t *testing.T) {
	const receives = 3
	for name, options := range map[string][]func(*fsm.Descriptor){"one share": nil, "four shares": {partitioned}} {
		t.Run(name, func(t *testing.T) {
			lab := simulation.LabConfig{Receives: receives, Partitions: 4}
			on(t, lab, func(b *bench) {
				b.queue("q", options...)
				b.queue("other", options...)
				came := make(chan *got, receives+2)
				receive := func(node int) *receiver {
					r := b.clientAt(node).receiver("q")
					go func() {
						m, _ := r.try(time.Hour)
						came <- m
					}()
					b.pass(100 * time.Millisecond)
					return r
				}
				refused := func(what, entity string) {
					b.Helper()
					at := time.Now()
					_, err := b.clientAt(1).receiver(entity).try(patience)
					b.refused(what, err, serverBusy)
					want(b, what+" is told when to come again", strings.Contains(err.Error(), "wait 10 seconds"), true)
					b.about(what, time.Now(), at, 200*time.Millisecond)
				}
				var first []*receiver
				for i := range receives {
					first = append(first, receive(i))
				}
				refused("one more", "q")
				refused("one of the dead letters", deadLetters("q"))
				status, header, text := b.curl("DELETE", "/q/messages/head?timeout=5", "")
				want(b, "over HTTP: "+text, status, http.StatusServiceUnavailable)
				want(b, "over HTTP it is told when to come again", header.Get("Retry-After") != "", true)
				b.client().receiver("other").none(time.Second)

				b.client().send("q", "a")
				m := <-came
				want(b, "received", m.text(), "a")
				m.complete()
				next := receive(2)
				refused("beside one that came after another was served", "q")

				next.c.die()
				want(b, "received by who has gone", <-came == nil, true)
				b.pass(time.Second) // the node has seen it
				receive(0)
				refused("beside one that came after another had gone", "q")

				for _, r := range first {
					if r != m.rx {
						r.drain()
						break
					}
				}
				receive(1)
				refused("beside one that came after another was drained", "q")
			})
		})
	}
}

// T-210; S-229: an accept that waits for a session is a receive like another.
func TestT210AnAcceptCountsAsAReceive(t *testing.T) {
	on(t, simulation.LabConfig{Receives: 2}, func(b *bench) {
		b.queue("q", sessions)
		came := make(chan error, 2)
		for i := range 2 {
			c := b.clientAt(i)
			go func() {
				_, err := c.tryAccept("q", nil, time.Hour)
				came <- err
			}()
		}
		b.pass(time.Second)
		_, err := b.clientAt(2).tryAccept("q", nil, time.Hour)
		b.refused("the third accept", err, serverBusy)
		sendTo(b.client(), "q", "s", "a")
		b.must("an accept that waited", <-came)
		_, err = b.clientAt(2).tryAccept("q", nil, 2*time.Second)
		b.refused("in the place of that one", err, timedOut)
	})
}
