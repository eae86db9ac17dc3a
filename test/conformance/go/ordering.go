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

// sessionOrder sends to sessions that are received from meanwhile with the library's default loop.
func sessionOrder(e *env) {
	q := e.sessionQueue("PT1M")
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	run := func(work func() error) {
		wg.Go(func() {
			if err := work(); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	for i := range orderSessions {
		id := fmt.Sprint("s", i)
		s, r := e.sender(i+1, q), e.accept(i, q, id)
		run(func() error { return produceOrder(e.ctx, s, id) })
		run(func() error { return consumeOrder(e.ctx, r, id) })
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		e.must("order", *err)
	}
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
				return errors.New(id + ": " + string(m.Body) + " was handed out before " + fmt.Sprint(next))
			}
			next++
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
