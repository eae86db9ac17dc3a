// Command retry tries failed calls again, later each time. The message of the next attempt is scheduled, so the worker
// does other things meanwhile; the last attempt ends in the dead-letter queue.
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
	queue    = "retry-calls"
	attempts = 3
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
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for _, name := range []string{"busy", "gone"} { // the first answers at the third call, the second never
		if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte(name)}, nil); err != nil {
			return err
		}
		for over := false; !over; {
			messages, err := receiver.ReceiveMessages(ctx, 1, nil)
			if err != nil {
				return err
			}
			if over, err = work(ctx, sender, receiver, messages[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

func call(name string, attempt int64) error {
	if name == "busy" && attempt == 3 {
		return nil
	}
	return errors.New("no answer")
}

// work makes one attempt and reports whether it was the last.
func work(ctx context.Context, sender *azservicebus.Sender, receiver *azservicebus.Receiver, m *azservicebus.ReceivedMessage) (bool, error) {
	attempt, again := m.ApplicationProperties["attempt"].(int64)
	if !again {
		attempt = 1
	}
	failed := call(string(m.Body), attempt)
	if failed == nil {
		fmt.Printf("%s: attempt %d succeeded\n", m.Body, attempt)
		return true, receiver.CompleteMessage(ctx, m, nil)
	}
	if attempt == attempts {
		fmt.Printf("%s: attempt %d: %v; to the dead letters\n", m.Body, attempt, failed)
		reason, text := "TooManyAttempts", failed.Error()
		return true, receiver.DeadLetterMessage(ctx, m, &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &text})
	}
	delay := time.Duration(1<<(attempt-1)) * time.Second
	fmt.Printf("%s: attempt %d: %v; again in %s\n", m.Body, attempt, failed, delay)
	next := m.Message()
	next.ApplicationProperties = map[string]any{"attempt": attempt + 1}
	if _, err := sender.ScheduleMessages(ctx, []*azservicebus.Message{next}, time.Now().Add(delay), nil); err != nil {
		return false, err
	}
	return false, receiver.CompleteMessage(ctx, m, nil) // only now: a crash before it repeats an attempt, and loses none
}
