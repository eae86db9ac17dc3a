// Command duplicates has a worker that does each job once, although two jobs reach it twice. The scheduler gives each
// message the id of its job.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const queue = "duplicates-jobs"

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
	// The scheduler was restarted and sends job-1 a second time.
	for _, job := range []string{"job-1", "job-2", "job-1"} {
		if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &job}, nil); err != nil {
			return err
		}
	}
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	return work(ctx, receiver, 4)
}

// work handles so many deliveries. Done stands for a table that is written in the same transaction as the work.
func work(ctx context.Context, receiver *azservicebus.Receiver, deliveries int) error {
	done := map[string]bool{}
	for range deliveries {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m := messages[0]
		if done[m.MessageID] {
			fmt.Printf("%s: skipped, delivery %d\n", m.MessageID, m.DeliveryCount)
			if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
				return err
			}
			continue
		}
		fmt.Printf("%s: done, delivery %d\n", m.MessageID, m.DeliveryCount)
		done[m.MessageID] = true
		settle := func() error { return receiver.CompleteMessage(ctx, m, nil) }
		if m.MessageID == "job-2" { // as if the lock had been lost before the completion: the message comes again
			settle = func() error { return receiver.AbandonMessage(ctx, m, nil) }
		}
		if err := settle(); err != nil {
			return err
		}
	}
	return nil
}
