// Command twophase sends in two phases without transactions. Phase 1 stores a message where no worker looks. Phase 2
// makes it ready or deletes it, as the local transaction has decided, also after a crash in between.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	prepared = "twophase-prepared"
	ready    = "twophase-ready" // detects duplicates
)

// decisions stands for a table of your database: the orders whose local transaction has committed.
type decisions map[string]bool

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
	to, err := client.NewSender(prepared, nil)
	if err != nil {
		return err
	}
	defer to.Close(ctx)
	committed, sale := decisions{}, rand.Text()
	for _, order := range []string{"order 1", "order 2", "order 3"} {
		id := sale + "/" + order
		if err := to.SendMessage(ctx, &azservicebus.Message{MessageID: &id, Body: []byte(order)}, nil); err != nil {
			return err
		}
		switch order {
		case "order 1":
			committed[id] = true
			fmt.Printf("%s: prepared, committed here\n", order)
		case "order 2":
			fmt.Printf("%s: prepared, rolled back here\n", order)
		case "order 3":
			fmt.Printf("%s: prepared, and the process stops before it decides\n", order)
		}
	}
	if err := finish(ctx, client, committed, 3); err != nil { // by the next process
		return err
	}
	receiver, err := client.NewReceiverForQueue(ready, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	messages, err := receiver.ReceiveMessages(ctx, 10, nil)
	for _, m := range messages {
		fmt.Printf("%s: received\n", m.Body)
		err = errors.Join(err, receiver.CompleteMessage(ctx, m, nil))
	}
	return err
}

// finish is phase 2 of so many messages. It may stop anywhere and be done again: a second send has the same id.
func finish(ctx context.Context, client *azservicebus.Client, committed decisions, count int) error {
	receiver, err := client.NewReceiverForQueue(prepared, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	sender, err := client.NewSender(ready, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	for range count {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m := messages[0]
		if committed[m.MessageID] {
			if err := sender.SendMessage(ctx, m.Message(), nil); err != nil {
				return err
			}
			fmt.Printf("%s: is ready\n", m.Body)
		} else {
			fmt.Printf("%s: is deleted\n", m.Body)
		}
		if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
			return err
		}
	}
	return nil
}
