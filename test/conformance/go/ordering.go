package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	orderSessions = 10
	orderEach     = 500                  // messages of a session
	orderPause    = 4 * time.Millisecond // the longest pause between two sends
)

func ordering() map[string]scenario {
	return map[string]scenario{"session-order": sessionOrder}
}

// sessionOrder sends to sessions that are received from meanwhile with the library's default loop. A receive call of
// the library ends 20 ms after its first message. It releases what of a batch it has not read from its connection by
// then, while it hands out the rest. The order is lost in the client. So a run in which this process did not run for
// that long proves nothing and is repeated.
func sessionOrder(e *env) {
	const runs = 8
	for n := 1; ; n++ {
		paused, err := orderRun(e)
		if err == nil {
			return
		}
		if n == runs || !errors.Is(err, errOrder) || paused < callEnd/2 {
			e.must(fmt.Sprintf("order, longest pause of the process %v, run %d", paused, n), err)
		}
	}
}

// callEnd is how long a receive call of the library goes on after its first message.
const callEnd = 20 * time.Millisecond

var errOrder = errors.New("out of order")

// orderRun is one run. It returns how long the process did not run at most, by a goroutine that sleeps for a
// millisecond over and over.
func orderRun(e *env) (paused time.Duration, err error) {
	q := e.sessionQueue("PT1M")
	ctx, cancel := context.WithCancel(e.ctx)
	watched := make(chan time.Duration)
	go func() {
		longest := time.Duration(0)
		for ctx.Err() == nil {
			began := time.Now()
			time.Sleep(time.Millisecond)
			longest = max(longest, time.Since(began)-time.Millisecond)
		}
		watched <- longest
	}()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	run := func(work func() error) {
		wg.Go(func() {
			if err := work(); err != nil && failed.CompareAndSwap(nil, &err) {
				cancel()
			}
		})
	}
	for i := range orderSessions {
		id := fmt.Sprint("s", i)
		s, r := e.sender(i+1, q), e.accept(i, q, id)
		run(func() error { return produceOrder(ctx, s, id) })
		run(func() error { return consumeOrder(ctx, r, id) })
	}
	wg.Wait()
	cancel()
	paused = <-watched
	if cause := failed.Load(); cause != nil {
		err = *cause
	}
	return paused, err
}

func produceOrder(ctx context.Context, s *azservicebus.Sender, id string) error {
	for n := range orderEach {
		if err := s.SendMessage(ctx, inSession(id, fmt.Sprint(n)), nil); err != nil {
			return err
		}
		if rand.IntN(3) == 0 {
			time.Sleep(rand.N(orderPause))
		}
	}
	return nil
}

func consumeOrder(ctx context.Context, r *azservicebus.SessionReceiver, id string) error {
	for next := 0; next < orderEach; {
		got, err := r.ReceiveMessages(ctx, 10, nil)
		if err != nil {
			return err
		}
		for _, m := range got {
			if n, err := strconv.Atoi(string(m.Body)); err != nil || n != next {
				return fmt.Errorf("%s: %s was handed out before %d: %w", id, m.Body, next, errOrder)
			}
			next++
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
