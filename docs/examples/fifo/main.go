// Command fifo hands over two files as sequences of messages that travel interleaved through one queue. Each sequence
// is a session: one consumer gets it whole and in order, whatever the other consumers do.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const queue = "fifo-files"

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
	if err := send(ctx, client); err != nil {
		return err
	}

	// Two consumers, each with a session of its own.
	var reports []string
	errs, texts := make(chan error, 2), make(chan string, 2)
	for range 2 {
		go func() {
			text, err := consume(ctx, client)
			texts <- text
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
		reports = append(reports, <-texts)
	}
	slices.Sort(reports)
	fmt.Print(strings.Join(reports, ""))
	return nil
}

// send sends two sequences, one message of each in turn. The subject tells where a sequence begins and ends.
func send(ctx context.Context, client *azservicebus.Client) error {
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	for i, subject := range []string{"start", "content", "content", "end"} {
		for _, file := range []string{"letter", "report"} {
			body := fmt.Sprintf("%s, part %d", file, i)
			err := sender.SendMessage(ctx, &azservicebus.Message{SessionID: &file, Subject: &subject, Body: []byte(body)}, nil)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// consume takes a session that nobody holds, reads it from start to end and gives it back at once.
func consume(ctx context.Context, client *azservicebus.Client) (string, error) {
	session, err := client.AcceptNextSessionForQueue(ctx, queue, nil)
	if err != nil {
		return "", err
	}
	defer session.Close(ctx)
	var text strings.Builder
	var start int64
	for {
		messages, err := session.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return "", err
		}
		m := messages[0]
		switch *m.Subject {
		case "start":
			start = *m.SequenceNumber
		case "content", "end":
			if start == 0 {
				return "", errors.New("a sequence without a start")
			}
		}
		fmt.Fprintf(&text, "%-7s %s, number %d behind the start\n", *m.Subject, m.Body, *m.SequenceNumber-start)
		if err := session.CompleteMessage(ctx, m, nil); err != nil {
			return "", err
		}
		if *m.Subject == "end" {
			return text.String(), nil
		}
	}
}
