package transport

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// These tests are about the order in a session when its holder gives messages back (S-58, RUL-28). Time is
// virtual.

// grouped sends messages of session s, numbered from first, over a link of its own.
func (c *rawClient) grouped(first, count uint32) {
	c.t.Helper()
	c.attach(0, senderTo(20, "orders"))
	expect[*amqp.Flow](c)
	for i := range count {
		m := amqp.AppendProperties(nil, &amqp.Properties{GroupID: []byte("s")})
		c.send(0, transferOf(20, first+i), amqp.AppendData(m, []byte(fmt.Sprint(first+i))))
		if d, _ := expect[*amqp.Disposition](c); d.State != (amqp.Accepted{}) {
			c.t.Fatalf("message %d: %v", first+i, d.State)
		}
	}
	c.send(0, &amqp.Detach{Handle: 20, Closed: true})
	expect[*amqp.Detach](c)
}

// inSession runs f with a client that holds session s over link 3, and another one.
func inSession(t *testing.T, product string, f func(b *bubble, c, other *rawClient)) {
	t.Helper()
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", withSessions)
		c, other := b.client(), b.client()
		c.product = product
		c.authenticate()
		other.authenticate()
		c.attach(0, sessionReceiverOf(3, "orders", "s"))
		f(b, c, other)
		c.close()
		other.close()
	})
}

// release gives messages back without waiting for the answers.
func (c *rawClient) release(ids ...uint32) {
	c.t.Helper()
	for _, id := range ids {
		c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: id, State: amqp.Released{}})
	}
}

// numbered reports whether a command is the n-th of its kind.
func numbered[T fsm.Command](n int) func(fsm.Command) bool {
	return func(cmd fsm.Command) bool {
		if _, ok := cmd.(T); ok {
			n--
			return n == 0
		}
		return false
	}
}

// transfers reads frames up to the n-th transfer, and returns the transfers; answers to dispositions may lie between.
func (c *rawClient) transfers(n int) (all []arrival) {
	c.t.Helper()
	for len(all) < n {
		p, payload := c.next()
		switch p := p.(type) {
		case *amqp.Transfer:
			all = append(all, c.arrived(p, payload))
		case *amqp.Disposition:
		default:
			c.t.Fatalf("got %s\n%s", describe(0, p), c.trace.String())
		}
	}
	return all
}

// S-58: a fetch whose answer is on its way when the client gives a message back does not overtake it.
func TestAFetchUnderWayDoesNotOvertakeWhatIsGivenBack(t *testing.T) {
	for name, state := range map[string]amqp.DeliveryState{
		"released": amqp.Released{}, "abandoned": amqp.Modified{DeliveryFailed: amqp.Some(true)},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, "", func(b *bubble, c, other *rawClient) {
				c.send(0, grantOf(3, 0, 10))
				other.grouped(1, 1)
				first := c.transfers(1)
				late := b.holdBack(numbered[*fsm.Lock](1))
				other.grouped(2, 2)
				<-late.there // 2 is locked for the client, which does not know yet
				c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: first[0].id, State: state})
				c.silentBut(time.Second)
				close(late.answer)
				for i, g := range c.transfers(3) {
					if g.number != int64(i)+1 {
						t.Fatalf("number %d came in place %d", g.number, i+1)
					}
					if i > 0 && g.count != 0 {
						t.Errorf("number %d has count %d: it was never sent before", g.number, g.count)
					}
				}
			})
		})
	}
}

// silentBut fails if the server sends a transfer within d.
func (c *rawClient) silentBut(d time.Duration) {
	c.t.Helper()
	time.Sleep(d)
	for range len(c.in) {
		if p, _ := c.next(); p != nil {
			if _, ok := p.(*amqp.Transfer); ok {
				c.t.Fatalf("got %s\n%s", describe(0, p), c.trace.String())
			}
		}
	}
}

// S-58: as long as one of several that were given back is not back, nothing is handed out.
func TestSeveralAreGivenBackAtOnce(t *testing.T) {
	inSession(t, "", func(b *bubble, c, other *rawClient) {
		other.grouped(1, 8)
		c.send(0, grantOf(3, 0, 6))
		all := c.transfers(6)
		late := b.holdBackAny(numbered[*fsm.Settle](1))
		c.release(all[4].id) // its answer is late
		<-late.there
		c.release(all[1].id, all[2].id, all[5].id, all[3].id)
		c.send(0, grantOf(3, 6, 6))
		c.silentBut(time.Second)
		close(late.answer)
		numbers := []int64{2, 3, 4, 5, 6, 7}
		for i, g := range c.transfers(6) {
			if g.number != numbers[i] || g.count != 0 {
				t.Errorf("place %d: number %d with count %d, want %d", i, g.number, g.count, numbers[i])
			}
		}
	})
}

// RUL-28: where nobody knows whether a message is back, or what was locked, the link ends, and with it the
// session: the next holder gets all in order.
func TestAnUnknownOutcomeEndsASessionsLink(t *testing.T) {
	for name, fails := range map[string]func(fsm.Command) bool{
		"of a give-back": func(cmd fsm.Command) bool { _, ok := cmd.(*fsm.Settle); return ok },
		"of a fetch":     func(cmd fsm.Command) bool { l, ok := cmd.(*fsm.Lock); return ok && l.Max == 6 },
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, "", func(b *bubble, c, other *rawClient) {
				other.grouped(1, 3)
				c.send(0, grantOf(3, 0, 1))
				first := c.transfers(1)
				b.broker.mu.Lock()
				b.broker.fail = func(cmd fsm.Command) error {
					if fails(cmd) {
						return fsm.ErrUnknown
					}
					return nil
				}
				b.broker.mu.Unlock()
				c.release(first[0].id)
				c.send(0, grantOf(3, 1, 6))
				for {
					p, _ := c.next()
					if d, ok := p.(*amqp.Detach); ok {
						if d.Error == nil || d.Error.Condition != amqp.ConditionTimeout {
							t.Errorf("detached with %+v", d.Error)
						}
						break
					}
					if _, ok := p.(*amqp.Disposition); !ok {
						t.Fatalf("got %s", describe(0, p))
					}
				}
				b.broker.mu.Lock()
				b.broker.fail = nil
				b.broker.mu.Unlock()
				time.Sleep(time.Second)
				other.attach(0, sessionReceiverOf(3, "orders", "s"))
				other.send(0, grantOf(3, 0, 3))
				wantArrivals(t, other.receive(3), 0, 1, 2, 3)
			})
		})
	}
}

// S-58, RUL-28: a client that releases what comes between two calls, as the Go and Python SDKs do, gets what is there
// when a call begins; what comes later waits for the next call, or comes alone.
func TestAClientThatReleasesBetweenCallsIsGivenNothingThen(t *testing.T) {
	for _, product := range []string{goProduct, pythonProduct} {
		t.Run(product, func(t *testing.T) {
			inSession(t, product, func(b *bubble, c, other *rawClient) {
				other.grouped(1, 3)
				c.send(0, grantOf(3, 0, 10)) // a call begins
				wantArrivals(t, c.transfers(3), 0, 1, 2, 3)
				other.grouped(4, 3)
				c.silent(callWait / 2) // the application works
				c.send(0, grantOf(3, 3, 10))
				wantArrivals(t, c.transfers(3), 0, 4, 5, 6)
				c.silent(callWait + time.Millisecond) // no call for a while
				other.grouped(7, 3)
				all := c.transfers(1)
				wantArrivals(t, all, 0, 7)
				c.silent(callWait / 2)
				c.release(all[0].id) // as it does between two calls
				c.silentBut(callWait / 4)
				c.send(0, grantOf(3, 7, 10))
				wantArrivals(t, c.transfers(3), 0, 7, 8, 9)
			})
		})
	}
}

// S-58: the blocking receiver of the Java SDK releases what comes between two calls. As soon as it has done so, it gets what is
// there when a call begins. Its other receivers never release a message, and get what comes at once.
func TestAJavaClientIsPacedOnceItReleases(t *testing.T) {
	inSession(t, javaProduct, func(b *bubble, c, other *rawClient) {
		c.send(0, grantOf(3, 0, 10)) // a call begins
		other.grouped(1, 2)
		all := c.transfers(2) // as for a receiver that makes no calls
		wantArrivals(t, all, 0, 1, 2)
		c.settle(amqp.Accepted{}, all[0].id, all[1].id)
		other.grouped(3, 2)
		all = c.transfers(2) // the call is over
		wantArrivals(t, all, 0, 3, 4)
		c.settle(amqp.Modified{}, all[0].id) // an application abandons it
		all = append(all, c.transfers(1)...)
		wantArrivals(t, all[2:], 1, 3)
		c.settle(amqp.Accepted{}, all[1].id, all[2].id)
		other.grouped(5, 1)
		all = c.transfers(1)
		wantArrivals(t, all, 0, 5)
		c.release(all[0].id)
		other.grouped(6, 2)
		c.silentBut(callWait / 2)
		c.send(0, grantOf(3, 6, 10)) // the next call
		all = c.transfers(3)
		wantArrivals(t, all, 0, 5, 6, 7)
		other.grouped(8, 2)
		c.settle(amqp.Accepted{}, all[0].id, all[1].id, all[2].id)
		c.silent(callWait / 2)
		c.send(0, grantOf(3, 9, 10))
		wantArrivals(t, c.transfers(2), 0, 8, 9)
	})
}

// S-58: the Python SDK may write the flow of a call ahead of the release of what came just before it. The call
// gets messages when the release is there, in order, or when the message was kept for longer than callWait.
func TestAReleaseMayComeBehindTheFlowOfTheNextCall(t *testing.T) {
	inSession(t, pythonProduct, func(b *bubble, c, other *rawClient) {
		c.send(0, grantOf(3, 0, 10))
		c.silent(time.Second) // a call waits
		other.grouped(1, 4)
		first := c.transfers(1)
		wantArrivals(t, first, 0, 1)
		c.send(0, grantOf(3, 1, 10)) // the call was over, and the next one begins
		c.silent(callWait / 2)
		c.release(first[0].id)
		wantArrivals(t, c.transfers(4), 0, 1, 2, 3, 4)
		c.send(0, grantOf(3, 5, 10))
		c.silent(time.Second)
		other.grouped(5, 3)
		wantArrivals(t, c.transfers(1), 0, 5)
		c.send(0, grantOf(3, 6, 10)) // the application settles later
		c.silent(decideWait - time.Millisecond)
		wantArrivals(t, c.transfers(2), 0, 6, 7)
	})
}

// A call that finds nothing gets the next message at once, and one that needs no more credit gets on. The client
// that settles each message waits for callWait; one that keeps them is waited for twice.
func TestACallThatWaitsGetsTheNextMessage(t *testing.T) {
	for name, settles := range map[string]bool{"settles each": true, "settles later": false} {
		t.Run(name, func(t *testing.T) {
			inSession(t, goProduct, func(b *bubble, c, other *rawClient) {
				c.send(0, grantOf(3, 0, 4))
				c.silent(10 * time.Second)
				began := time.Now()
				other.grouped(1, 4)
				for i := range 4 {
					got := c.transfers(1)
					wantArrivals(t, got, 0, int64(i)+1)
					limit := time.Duration(i) * callWait
					if !settles {
						limit += time.Duration(min(i, keepsAfter)) * (decideWait - callWait)
					}
					if waited := time.Since(began); waited > limit+time.Millisecond || waited < limit {
						t.Errorf("message %d came after %v, want %v", i+1, waited, limit)
					}
					if settles {
						c.settle(amqp.Accepted{}, got[0].id)
					}
				}
			})
		})
	}
}

// S-58: each call of the Python SDK grants credit, unless the receiver prefetches. A client that granted some while it had
// some left is sent nothing until it grants more: a thread of the SDK would take the message and could be kept from
// releasing it. What it has left is used up all the same by an application that iterates, one message every nextCallWait.
func TestAClientThatGrantsCreditWithEachCallIsSentNothingBetween(t *testing.T) {
	inSession(t, pythonProduct, func(b *bubble, c, other *rawClient) {
		other.grouped(1, 1)
		c.send(0, grantOf(3, 0, 10))
		wantArrivals(t, c.transfers(1), 0, 1)
		other.grouped(2, 1)
		c.send(0, grantOf(3, 1, 10))
		second := c.transfers(1)
		wantArrivals(t, second, 0, 2)
		sent := time.Now()
		other.grouped(3, 3)
		c.settle(amqp.Accepted{}, second[0].id)
		c.silent(nextCallWait - time.Since(sent) - time.Millisecond)
		c.send(0, grantOf(3, 2, 10))
		wantArrivals(t, c.transfers(3), 0, 3, 4, 5)
		sent = time.Now()
		other.grouped(6, 2)
		for i := range 2 { // the application iterates
			got := c.transfers(1)
			wantArrivals(t, got, 0, 6+int64(i))
			if waited := time.Since(sent); waited != time.Duration(i+1)*nextCallWait {
				t.Errorf("message %d came after %v", 6+i, waited)
			}
			c.settle(amqp.Accepted{}, got[0].id)
		}
	})
}

// S-58: a receiver of the Python SDK that prefetches grants credit when all is used up only; it gets its messages as they
// come, one each callWait.
func TestAClientThatPrefetchesGetsItsMessagesAsTheyCome(t *testing.T) {
	inSession(t, pythonProduct, func(b *bubble, c, other *rawClient) {
		other.grouped(1, 3)
		c.send(0, grantOf(3, 0, 3))
		wantArrivals(t, c.transfers(3), 0, 1, 2, 3)
		other.grouped(4, 2)
		c.send(0, grantOf(3, 3, 3))
		all := c.transfers(2)
		wantArrivals(t, all, 0, 4, 5)
		sent := time.Now()
		c.settle(amqp.Accepted{}, all[0].id)
		c.settle(amqp.Accepted{}, all[1].id)
		other.grouped(6, 1)
		wantArrivals(t, c.transfers(1), 0, 6)
		if waited := time.Since(sent); waited != callWait {
			t.Errorf("the last one came after %v", waited)
		}
	})
}

// S-58: a client that has no time to run is sent no message behind one that it may be releasing.
func TestASlowClientIsSentNothingBehindALoneMessage(t *testing.T) {
	for _, product := range []string{goProduct, pythonProduct} {
		t.Run(product, func(t *testing.T) {
			inSession(t, product, func(b *bubble, c, other *rawClient) {
				c.send(0, grantOf(3, 0, 10))
				c.silent(time.Second) // the call ends here
				other.grouped(1, 4)
				first := c.transfers(1)
				wantArrivals(t, first, 0, 1)
				c.silent(decideWait - callWait*3/2)
				c.release(first[0].id)
				c.silentBut(callWait / 4)
				c.send(0, grantOf(3, 1, 10)) // the next call
				wantArrivals(t, c.transfers(4), 0, 1, 2, 3, 4)
			})
		})
	}
}

// S-58: a client that kept messages for long and then releases one may release the next one too: nothing is sent
// behind that.
func TestAClientThatReleasesIsNotTakenForOneThatKeeps(t *testing.T) {
	for _, product := range []string{goProduct, pythonProduct} {
		t.Run(product, func(t *testing.T) {
			inSession(t, product, func(b *bubble, c, other *rawClient) {
				c.send(0, grantOf(3, 0, 20))
				c.silent(time.Second) // the call ends here
				other.grouped(1, 5)
				for i := range keepsAfter { // a stalled client decides on nothing
					wantArrivals(t, c.transfers(1), 0, int64(i)+1)
					c.silent(decideWait - time.Millisecond)
				}
				kept := c.transfers(1)
				wantArrivals(t, kept, 0, 3)
				c.release(kept[0].id)
				again := c.transfers(1)
				wantArrivals(t, again, 0, 3)
				c.silentBut(decideWait - callWait/2)
				c.release(again[0].id)
				c.send(0, grantOf(3, 4, 20)) // the next call
				wantArrivals(t, c.transfers(3), 0, 3, 4, 5)
			})
		})
	}
}

// S-58: a client whose settlement waits for its answer is not held to keep what it got.
func TestAClientThatWaitsForUsKeepsNothing(t *testing.T) {
	for _, product := range []string{goProduct, pythonProduct} {
		t.Run(product, func(t *testing.T) {
			inSession(t, product, func(b *bubble, c, other *rawClient) {
				other.grouped(1, 1)
				c.send(0, grantOf(3, 0, 10))
				first := c.transfers(1)
				c.silent(time.Second)
				late := b.holdBackAny(numbered[*fsm.Settle](1))
				c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: first[0].id, State: amqp.Accepted{}})
				answer := sync.OnceFunc(func() { close(late.answer) })
				defer answer()
				<-late.there
				other.grouped(2, 3)
				second := c.transfers(1)
				wantArrivals(t, second, 0, 2)
				c.silent(3 * decideWait) // the partition has no leader
				answer()
				c.silentBut(callWait)
				c.release(second[0].id) // what came while the application waited for its settlement
				c.send(0, grantOf(3, 2, 10))
				wantArrivals(t, c.transfers(3), 0, 2, 3, 4)
			})
		})
	}
}

// S-147: a message released on a link that detaches in the same breath goes to a receiver that waits.
func TestAMessageReleasedWithADetachGoesToOthers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for i := range 8 { // of two that wait, either may be first
			queue := fmt.Sprint("orders", i)
			b.broker.queue(queue)
			c, other := b.client(), b.client()
			c.authenticate()
			other.authenticate()
			c.fill(2, queue, 1, 1)
			c.attach(0, receiverOf(3, queue))
			c.send(0, grantOf(3, 0, 10))
			first := c.receive(1)
			other.attach(0, receiverOf(3, queue))
			other.send(0, grantOf(3, 0, 10))
			time.Sleep(time.Second) // both wait
			late := b.holdBackAny(numbered[*fsm.Settle](1))
			c.release(first[0].id)
			<-late.there                 // it is back, and the link has not heard of it
			time.Sleep(time.Millisecond) // what waits for it has it
			c.send(0, &amqp.Detach{Handle: 3, Closed: true})
			time.Sleep(time.Millisecond)
			close(late.answer)
			wantArrivals(t, other.receive(1), 0, 1)
			c.close()
			other.close()
		}
	})
}
