// Command handler runs a handler whose work takes longer than the lock of its message. The SDK for Go has no processor:
// handle is its recipe. It renews the lock, completes when the handler is done and abandons when it fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	queue      = "handler-reports" // its locks last 10 s
	work       = 12 * time.Second
	renewAtAll = time.Minute // a handler that hangs loses its message then
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := azservicebus.NewClientFromConnectionString(os.Getenv("SERVICEBUS_CONNECTION_STRING"), nil)
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	for _, report := range []string{"long", "broken"} {
		if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte(report)}, nil); err != nil {
			return err
		}
	}
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for range 3 { // deliveries
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		if err := handle(ctx, receiver, messages[0], write); err != nil {
			return err
		}
	}
	return nil
}

// write is the handler.
func write(ctx context.Context, m *azservicebus.ReceivedMessage) error {
	fmt.Printf("%s: begins, delivery %d\n", m.Body, m.DeliveryCount)
	if string(m.Body) == "broken" && m.DeliveryCount == 1 {
		return errors.New("the printer is out of paper")
	}
	if string(m.Body) == "long" {
		select {
		case <-time.After(work):
		case <-ctx.Done(): // the lock is lost: somebody else has the message
			return ctx.Err()
		}
	}
	fmt.Printf("%s: done\n", m.Body)
	return nil
}

// handle is what a processor does for each message.
func handle(ctx context.Context, receiver *azservicebus.Receiver, m *azservicebus.ReceivedMessage,
	handler func(context.Context, *azservicebus.ReceivedMessage) error) error {
	working, stop := context.WithTimeout(ctx, renewAtAll)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		renew(working, stop, receiver, m)
	}()
	err := handler(working, m)
	stop()
	<-renewed
	if err != nil {
		fmt.Printf("%s: failed: %v\n", m.Body, err)
		return receiver.AbandonMessage(ctx, m, nil)
	}
	return receiver.CompleteMessage(ctx, m, nil)
}

// renew renews the lock when half of its time is over, until the work is done. It stops the work when it cannot.
func renew(working context.Context, stop func(), receiver *azservicebus.Receiver, m *azservicebus.ReceivedMessage) {
	for {
		select {
		case <-time.After(time.Until(*m.LockedUntil) / 2):
		case <-working.Done():
			return
		}
		if err := receiver.RenewMessageLock(working, m, nil); err != nil {
			stop()
			return
		}
	}
}
