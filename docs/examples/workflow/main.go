// Command workflow runs an order as a state machine. Its state is the state of its session, so another process goes on
// where one has crashed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const queue = "workflow-orders"

// next is the state machine: the state in which each message leaves an order.
var next = map[string]string{"order": "ordered", "pay": "paid", "ship": "shipped", "close": "closed"}

// order is what the session keeps: a state, and the id of the last message whose work is in it.
type order struct{ State, Last string }

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
	if len(os.Args) > 1 { // a process that handles orders; it crashes in the middle of one step
		return handle(ctx, client, os.Args[1])
	}
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	session := "order-7"
	for _, step := range []string{"order", "pay", "ship", "close"} {
		if err := sender.SendMessage(ctx, &azservicebus.Message{SessionID: &session, MessageID: &step}, nil); err != nil {
			return err
		}
	}
	for _, crash := range []string{"pay", "never"} {
		process := exec.CommandContext(ctx, os.Args[0], crash)
		process.Stdout, process.Stderr = os.Stdout, os.Stderr
		var exit *exec.ExitError
		if err := process.Run(); errors.As(err, &exit) && crash == "pay" {
			fmt.Printf("the process ended with code %d\n", exit.ExitCode())
		} else if err != nil {
			return err
		}
	}
	return nil
}

func handle(ctx context.Context, client *azservicebus.Client, crash string) error {
	session, err := client.AcceptNextSessionForQueue(ctx, queue, nil) // waits until the session of a dead process is free
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	state, err := session.GetSessionState(ctx, nil)
	if err != nil {
		return err
	}
	o := order{State: "new"}
	if state != nil {
		if err := json.Unmarshal(state, &o); err != nil {
			return err
		}
	}
	fmt.Printf("%s: a process finds it %s\n", session.SessionID(), o.State)
	for o.State != "closed" {
		messages, err := session.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m := messages[0]
		if m.MessageID == o.Last {
			fmt.Printf("%s: skipped, the state has it\n", m.MessageID)
		} else {
			o = order{next[m.MessageID], m.MessageID}
			if state, err = json.Marshal(o); err != nil {
				return err
			}
			if o.State == "closed" {
				state = nil // a session without messages and state is gone
			}
			if err := session.SetSessionState(ctx, state, nil); err != nil {
				return err
			}
			fmt.Printf("%s: the order is %s\n", m.MessageID, o.State)
		}
		if m.MessageID == crash {
			os.Exit(3) // between the state and the completion
		}
		if err := session.CompleteMessage(ctx, m, nil); err != nil {
			return err
		}
	}
	return nil
}
