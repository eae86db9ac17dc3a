// Command deadline judges essays by the time at which the broker took them, long after that time.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const queue = "deadline-essays"

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
	submit := func(author string) error {
		return sender.SendMessage(ctx, &azservicebus.Message{Body: []byte(author)}, nil)
	}
	if err := submit("ann"); err != nil {
		return err
	}
	deadline := time.Now().Add(time.Second)
	time.Sleep(2 * time.Second)
	if err := submit("bob"); err != nil {
		return err
	}
	fmt.Println("the deadline is over, the essays are read now")
	return read(ctx, client, deadline)
}

func read(ctx context.Context, client *azservicebus.Client, deadline time.Time) error {
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for range 2 {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		verdict := "in time"
		if messages[0].EnqueuedTime.After(deadline) {
			verdict = "too late"
		}
		fmt.Printf("%s: %s\n", messages[0].Body, verdict)
		if err := receiver.CompleteMessage(ctx, messages[0], nil); err != nil {
			return err
		}
	}
	return nil
}
