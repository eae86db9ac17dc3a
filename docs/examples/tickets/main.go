// Command tickets sells three tickets to the first three who asked. Two clerks work side by side and finish in any
// order; the sequence numbers of the requests decide.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	queue   = "tickets-requests"
	tickets = 3
)

// buyers asks in this order; ann is impatient.
var buyers = []string{"ann", "bob", "ann", "cid", "dan", "eve"}

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
	for _, buyer := range buyers {
		if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte(buyer)}, nil); err != nil {
			return err
		}
	}
	var all ledger
	var clerks sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		clerks.Go(func() { errs[i] = all.collect(ctx, client, len(buyers)/2) })
	}
	clerks.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, buyer := range all.inOrder() {
		if i < tickets {
			fmt.Printf("%s: ticket %d\n", buyer, i+1)
		} else {
			fmt.Printf("%s: sold out\n", buyer)
		}
	}
	return nil
}

// ledger has the first number of each buyer. It stands for a table of your database.
type ledger struct {
	mu    sync.Mutex
	first map[string]int64
}

// collect is a clerk who enters so many requests.
func (l *ledger) collect(ctx context.Context, client *azservicebus.Client, requests int) error {
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for range requests {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		l.enter(string(messages[0].Body), *messages[0].SequenceNumber)
		if err := receiver.CompleteMessage(ctx, messages[0], nil); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) enter(buyer string, number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = map[string]int64{}
	}
	if earlier, ok := l.first[buyer]; !ok || number < earlier {
		l.first[buyer] = number
	}
}

func (l *ledger) inOrder() []string {
	var all []string
	for buyer := range l.first {
		all = append(all, buyer)
	}
	slices.SortFunc(all, func(a, b string) int { return int(l.first[a] - l.first[b]) })
	return all
}
