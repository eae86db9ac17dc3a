package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/simulation"
)

const serverBusy = "com.microsoft:server-busy"

// T-211; S-230: when more is asked than a slow disk lets in, some senders are told so, and when to come
// again. Nothing of theirs is in the log, and coming again they succeed.
func TestT211WhatIsThrottledHasNoEffect(t *testing.T) {
	overloaded := simulation.LabConfig{Nodes: 1, Pending: 4, ProposeTimeout: 3 * time.Second}
	on(t, overloaded, func(b *bench) {
		const count = 40
		b.queue("q")
		var senders []*sender
		for range count {
			senders = append(senders, b.client().sender("q"))
		}
		_, index := b.lab.Digest(0, 1)
		b.lab.SlowDisk(0, 2*time.Second)
		var answers []<-chan error
		for i, s := range senders {
			answers = append(answers, b.later(func() error { return s.try(message(fmt.Sprint(i))) }))
		}
		var taken, refused []string
		for i, answer := range answers {
			switch err := <-answer; {
			case err == nil:
				taken = append(taken, fmt.Sprint(i))
			case conditionOf(err) == serverBusy:
				want(b, "it says when to come again", strings.Contains(err.Error(), "wait 10 seconds"), true)
				refused = append(refused, fmt.Sprint(i))
			default: // one that came in and had no answer in time
				want(b, "condition", conditionOf(err), timedOut)
			}
		}
		if len(taken) == 0 || len(refused) == 0 {
			b.Fatalf("%d were taken and %d refused", len(taken), len(refused))
		}
		b.lab.SlowDisk(0, 0)
		b.pass(10 * time.Second)
		stored := texts(b.client().peekAll("q"))
		for i := range count {
			text := fmt.Sprint(i)
			if slices.Contains(taken, text) && !slices.Contains(stored, text) {
				b.Fatalf("%s was taken and is not there", text)
			}
			if slices.Contains(refused, text) {
				want(b, text+", which was refused, is there", slices.Contains(stored, text), false)
				senders[i].send(message(text))
				stored = append(stored, text)
			}
		}
		now := texts(b.client().peekAll("q"))
		slices.Sort(now)
		slices.Sort(stored)
		wantAll(b, "stored in the end", now, stored...)
		sum, last := b.lab.Digest(0, 1)
		sends := b.asked(index, sum, last)
		sends = slices.DeleteFunc(sends, func(command string) bool { return command != "Enqueue" })
		want(b, "sends in the log", len(sends), len(stored))
	})
}
