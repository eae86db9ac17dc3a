// Command timer runs logins with a time limit. Each login schedules the message that ends it, and keeps the number of
// that message in the state of its session. It cancels the message when the code comes in time.
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

const (
	queue = "timer-logins"
	limit = 5 * time.Second
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
	// Ann asks for a code and enters it. Bob asks for one and goes away.
	for _, event := range [][2]string{{"ann", "ask"}, {"ann", "enter"}, {"bob", "ask"}} {
		if err := sender.SendMessage(ctx, &azservicebus.Message{SessionID: &event[0], Subject: &event[1]}, nil); err != nil {
			return err
		}
	}
	for _, user := range []string{"ann", "bob"} {
		if err := login(ctx, client, sender, user); err != nil {
			return err
		}
	}
	return nil
}

// login handles the messages of one user until the user is in or the time is over.
func login(ctx context.Context, client *azservicebus.Client, sender *azservicebus.Sender, user string) error {
	session, err := client.AcceptSessionForQueue(ctx, queue, user, nil)
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	for {
		messages, err := session.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m, over := messages[0], false
		switch *m.Subject {
		case "ask":
			err = startTimer(ctx, session, sender, user)
		case "enter":
			over, err = true, stopTimer(ctx, session, sender)
			fmt.Printf("%s: is in, the timer is cancelled\n", user)
		case "lapse":
			over = true
			fmt.Printf("%s: the code has lapsed\n", user)
		}
		if err != nil {
			return err
		}
		if err := session.CompleteMessage(ctx, m, nil); err != nil {
			return err
		}
		if over {
			return session.SetSessionState(ctx, nil, nil)
		}
	}
}

func startTimer(ctx context.Context, session *azservicebus.SessionReceiver, sender *azservicebus.Sender, user string) error {
	subject := "lapse"
	lapse := []*azservicebus.Message{{SessionID: &user, Subject: &subject}}
	numbers, err := sender.ScheduleMessages(ctx, lapse, time.Now().Add(limit), nil)
	if err != nil {
		return err
	}
	fmt.Printf("%s: has a code for %d s\n", user, int(limit.Seconds()))
	return session.SetSessionState(ctx, []byte(strconv.FormatInt(numbers[0], 10)), nil)
}

func stopTimer(ctx context.Context, session *azservicebus.SessionReceiver, sender *azservicebus.Sender) error {
	state, err := session.GetSessionState(ctx, nil)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(string(state), 10, 64)
	if err != nil {
		return err
	}
	return sender.CancelScheduledMessages(ctx, []int64{number}, nil)
}
