// Command checkpoint counts money. The running total is the state of the session. The SDK for Go has no transactions,
// so the state says up to which message it counts. A message that comes again is counted once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	queue   = "checkpoint-payments"
	account = "account-1"
)

var errStopped = errors.New("stopped")

// checkpoint is a total, and the number of the last message in it.
type checkpoint struct{ Total, UpTo int64 }

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
	session := account
	for _, amount := range []string{"10", "20", "30"} {
		if err := sender.SendMessage(ctx, &azservicebus.Message{SessionID: &session, Body: []byte(amount)}, nil); err != nil {
			return err
		}
	}
	// The first worker stops between the two steps of the message 20.
	if err := count(ctx, client, "20"); !errors.Is(err, errStopped) {
		return err
	}
	return count(ctx, client, "none")
}

func count(ctx context.Context, client *azservicebus.Client, stopAt string) error {
	session, err := client.AcceptSessionForQueue(ctx, queue, account, nil)
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	var c checkpoint
	if state, err := session.GetSessionState(ctx, nil); err != nil {
		return err
	} else if state != nil {
		if err := json.Unmarshal(state, &c); err != nil {
			return err
		}
	}
	for {
		messages, err := session.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m := messages[0]
		if *m.SequenceNumber <= c.UpTo {
			fmt.Printf("%s came again, the total is %d with it\n", m.Body, c.Total)
		} else if err := add(ctx, session, &c, m); err != nil {
			return err
		}
		if string(m.Body) == stopAt {
			fmt.Println("the worker stops before it completes the message")
			return errStopped
		}
		if err := session.CompleteMessage(ctx, m, nil); err != nil {
			return err
		}
		if string(m.Body) == "30" { // the last: clear the state, or it stays for ever
			return session.SetSessionState(ctx, nil, nil)
		}
	}
}

// add stores the checkpoint with the message in it. Only then may the message be completed.
func add(ctx context.Context, session *azservicebus.SessionReceiver, c *checkpoint, m *azservicebus.ReceivedMessage) error {
	amount, err := strconv.ParseInt(string(m.Body), 10, 64)
	if err != nil {
		return err
	}
	*c = checkpoint{c.Total + amount, *m.SequenceNumber}
	state, err := json.Marshal(c)
	if err != nil {
		return err
	}
	fmt.Printf("%d counted, the total is %d\n", amount, c.Total)
	return session.SetSessionState(ctx, state, nil)
}
