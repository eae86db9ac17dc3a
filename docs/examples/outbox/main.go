// Command outbox sends what a database has decided. An order and its message are written in one local transaction. A
// relay sends the messages afterwards, as often as it must, and the queue drops what it has already.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const queue = "outbox-orders" // detects duplicates

// row is a message that the local transaction of an order has left in the outbox.
type row struct {
	id, body string
	sent     bool
}

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
	// The table stands for one of your database. The id of a message is that of its row.
	table := rand.Text()
	var outbox []*row
	for i := 1; i <= 3; i++ {
		outbox = append(outbox, &row{id: fmt.Sprintf("%s-%d", table, i), body: fmt.Sprintf("order %d", i)})
	}
	fmt.Println("3 orders and their messages are committed")

	// The first relay stops before it notes that the second message was sent.
	if err := relay(ctx, client, outbox, "order 2"); err != nil {
		return err
	}
	if err := relay(ctx, client, outbox, "none"); err != nil {
		return err
	}
	return receive(ctx, client)
}

// relay sends the rows that are not noted as sent, and notes each when its outcome is there.
func relay(ctx context.Context, client *azservicebus.Client, outbox []*row, stopAt string) error {
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	for _, r := range outbox {
		if r.sent {
			continue
		}
		if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &r.id, Body: []byte(r.body)}, nil); err != nil {
			return err
		}
		fmt.Printf("%s: sent\n", r.body)
		if r.body == stopAt {
			fmt.Println("the relay stops before it notes that")
			return nil
		}
		r.sent = true
	}
	return nil
}

// receive shows all that the queue has.
func receive(ctx context.Context, client *azservicebus.Client) error {
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for range 3 {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		fmt.Printf("%s: received\n", messages[0].Body)
		if err := receiver.CompleteMessage(ctx, messages[0], nil); err != nil {
			return err
		}
	}
	left, err := receiver.PeekMessages(ctx, 10, nil)
	if err != nil {
		return err
	}
	fmt.Printf("%d messages are left\n", len(left))
	return nil
}
