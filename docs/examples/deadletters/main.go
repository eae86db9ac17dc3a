// Command deadletters has a worker that dead-letters an order it cannot read, and a repairer that reads dead letters,
// repairs them and sends them again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const queue = "deadletters-orders"

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
	for _, amount := range []string{"10", "twenty"} {
		id := "order-" + amount
		if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, Body: []byte(amount)}, nil); err != nil {
			return err
		}
	}
	if err := work(ctx, client, 2); err != nil {
		return err
	}
	if err := repair(ctx, client, sender); err != nil {
		return err
	}
	return work(ctx, client, 1)
}

// work handles so many orders. To try again would not help an amount that is no number, so it is rejected at once.
func work(ctx context.Context, client *azservicebus.Client, orders int) error {
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for range orders {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m := messages[0]
		if amount, bad := strconv.Atoi(string(m.Body)); bad != nil {
			reason, text := "NoNumber", fmt.Sprintf("%q is no number", m.Body)
			fmt.Printf("%s: rejected\n", m.MessageID)
			err = receiver.DeadLetterMessage(ctx, m, &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &text})
		} else {
			fmt.Printf("%s: paid %d\n", m.MessageID, amount)
			err = receiver.CompleteMessage(ctx, m, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repair repairs one dead letter. It completes the dead letter after the new message is stored: a crash in between leaves
// both, not neither.
func repair(ctx context.Context, client *azservicebus.Client, sender *azservicebus.Sender) error {
	receiver, err := client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	dead := messages[0]
	fmt.Printf("%s: %s, %s; sent again as 20\n", dead.MessageID, *dead.DeadLetterReason, *dead.DeadLetterErrorDescription)
	repaired := dead.Message()
	repaired.Body = []byte("20")
	delete(repaired.ApplicationProperties, "DeadLetterReason") // they belong to the dead letter
	delete(repaired.ApplicationProperties, "DeadLetterErrorDescription")
	if err := sender.SendMessage(ctx, repaired, nil); err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, dead, nil)
}
