// Command modes receives the same number of messages in both modes and measures them. Then it shows what each mode
// leaves of a message whose worker failed.
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
	queue = "modes-samples"
	count = 200
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
	for _, mode := range []azservicebus.ReceiveMode{azservicebus.ReceiveModeReceiveAndDelete, azservicebus.ReceiveModePeekLock} {
		if err := try(ctx, client, mode); err != nil {
			return err
		}
	}
	return nil
}

func try(ctx context.Context, client *azservicebus.Client, mode azservicebus.ReceiveMode) error {
	name, deletes := "peek-lock", mode == azservicebus.ReceiveModeReceiveAndDelete
	if deletes {
		name = "receive and delete"
	}
	receiver, err := client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{ReceiveMode: mode})
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	if err := send(ctx, client, count); err != nil {
		return err
	}
	began := time.Now()
	for n := 0; n < count; {
		messages, err := receiver.ReceiveMessages(ctx, 20, nil)
		if err != nil {
			return err
		}
		n += len(messages)
		for _, m := range messages {
			if deletes {
				continue // it is settled
			}
			if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s: %d messages in %d ms\n", name, count, time.Since(began).Milliseconds())

	// A worker takes one more message and fails.
	if err := send(ctx, client, 1); err != nil {
		return err
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	if !deletes {
		err = receiver.AbandonMessage(ctx, messages[0], nil)
	}
	soon, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	again, none := receiver.ReceiveMessages(soon, 1, nil)
	switch {
	case errors.Is(none, context.DeadlineExceeded):
		fmt.Printf("%s: the message of the failed worker is lost\n", name)
		return err
	case none != nil:
		return none
	}
	fmt.Printf("%s: the message of the failed worker is there again\n", name)
	return errors.Join(err, receiver.CompleteMessage(ctx, again[0], nil))
}

func send(ctx context.Context, client *azservicebus.Client, n int) error {
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for range n {
		if err := batch.AddMessage(&azservicebus.Message{Body: []byte("sample")}, nil); err != nil {
			return err
		}
	}
	return sender.SendMessageBatch(ctx, batch, nil)
}
