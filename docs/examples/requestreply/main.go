// Command requestreply has two requesters and one responder. All answers go through one queue; each requester gets its
// own, for each has a session of the reply queue.
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

const (
	requests = "reply-requests"
	replies  = "reply-replies" // requires sessions
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
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 3)
	go func() { failed <- respond(ctx, client, 2) }()
	answers := map[string]chan string{"ann": make(chan string, 1), "bob": make(chan string, 1)}
	for name, answer := range answers {
		go func() {
			text, err := ask(ctx, client, name)
			answer <- text
			failed <- err
		}()
	}
	for range 3 {
		if err := <-failed; err != nil {
			return err
		}
	}
	fmt.Printf("ann was answered: %s\nbob was answered: %s\n", <-answers["ann"], <-answers["bob"])
	return nil
}

// ask accepts its reply session before it sends: a session that is held is given to nobody else.
func ask(ctx context.Context, client *azservicebus.Client, name string) (string, error) {
	id := rand.Text() // of this instance of the application
	session, err := client.AcceptSessionForQueue(ctx, replies, id, nil)
	if err != nil {
		return "", err
	}
	defer session.Close(ctx)
	sender, err := client.NewSender(requests, nil)
	if err != nil {
		return "", err
	}
	defer sender.Close(ctx)
	to := replies
	request := &azservicebus.Message{Body: []byte(name), ReplyTo: &to, ReplyToSessionID: &id}
	if err := sender.SendMessage(ctx, request, nil); err != nil {
		return "", err
	}
	messages, err := session.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return "", err
	}
	return string(messages[0].Body), session.CompleteMessage(ctx, messages[0], nil)
}

// respond answers count requests. A request says where its answer goes.
func respond(ctx context.Context, client *azservicebus.Client, count int) error {
	receiver, err := client.NewReceiverForQueue(requests, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for range count {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m := messages[0]
		sender, err := client.NewSender(*m.ReplyTo, nil)
		if err != nil {
			return err
		}
		defer sender.Close(ctx)
		answer := &azservicebus.Message{Body: []byte("good day, " + string(m.Body)), SessionID: m.ReplyToSessionID,
			CorrelationID: &m.MessageID}
		if err := sender.SendMessage(ctx, answer, nil); err != nil {
			return err
		}
		if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
			return err
		}
	}
	return nil
}
