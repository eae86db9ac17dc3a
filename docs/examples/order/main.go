// Command order has three messages and two consumers, of which the first is slow. Without sessions the messages are
// handed out in order and finished in another one. In a session they are finished in order, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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
	if err := without(ctx, client); err != nil {
		return err
	}
	return within(ctx, client)
}

func without(ctx context.Context, client *azservicebus.Client) error {
	if err := send(ctx, client, "order-plain"); err != nil {
		return err
	}
	slow, err := client.NewReceiverForQueue("order-plain", nil)
	if err != nil {
		return err
	}
	defer slow.Close(ctx)
	quick, err := client.NewReceiverForQueue("order-plain", nil)
	if err != nil {
		return err
	}
	defer quick.Close(ctx)
	first, err := slow.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	finished, err := finish(ctx, quick, 2) // while the slow consumer works on the first
	if err != nil {
		return err
	}
	if err := slow.CompleteMessage(ctx, first[0], nil); err != nil {
		return err
	}
	fmt.Println("without a session:", strings.Join(append(finished, string(first[0].Body)), " "))
	return nil
}

func within(ctx context.Context, client *azservicebus.Client) error {
	if err := send(ctx, client, "order-session"); err != nil {
		return err
	}
	slow, err := client.AcceptNextSessionForQueue(ctx, "order-session", nil)
	if err != nil {
		return err
	}
	defer slow.Close(ctx)
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := client.AcceptNextSessionForQueue(soon, "order-session", nil); err == nil {
		return errors.New("two consumers hold one session")
	}
	fmt.Println("the second consumer gets nothing of the session")
	finished, err := finish(ctx, slow, 3)
	if err != nil {
		return err
	}
	fmt.Println("within a session:", strings.Join(finished, " "))
	return nil
}

func send(ctx context.Context, client *azservicebus.Client, queue string) error {
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	set := "set-1" // a queue without sessions takes it for a property
	for _, body := range []string{"1", "2", "3"} {
		if err := sender.SendMessage(ctx, &azservicebus.Message{SessionID: &set, Body: []byte(body)}, nil); err != nil {
			return err
		}
	}
	return nil
}

// receiver is what receivers of queues and of sessions have in common.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

// finish takes and completes so many messages, and returns them in the order in which they were finished.
func finish(ctx context.Context, r receiver, count int) (finished []string, err error) {
	for range count {
		messages, err := r.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return nil, err
		}
		if err := r.CompleteMessage(ctx, messages[0], nil); err != nil {
			return nil, err
		}
		finished = append(finished, string(messages[0].Body))
	}
	return finished, nil
}
