// Command pipeline sends the same number of messages one at a time and ten at a time. The outcome of each send is
// looked at, in both cases.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	queue    = "pipeline-readings"
	count    = 200
	inFlight = 10
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
	for _, atATime := range []int{1, inFlight} {
		began := time.Now()
		if err := send(ctx, sender, atATime); err != nil {
			return err
		}
		fmt.Printf("%d messages accepted, %d at a time: %d ms\n", count, atATime, time.Since(began).Milliseconds())
	}
	return nil
}

// send has so many messages under way at a time. A send takes a place before it begins, and gives it back when its
// outcome is there.
func send(ctx context.Context, sender *azservicebus.Sender, atATime int) error {
	places := make(chan struct{}, atATime)
	outcomes := make([]error, count)
	var all sync.WaitGroup
	for i := range outcomes {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			outcomes[i] = sender.SendMessage(ctx, &azservicebus.Message{Body: fmt.Appendf(nil, "reading %d", i)}, nil)
		})
	}
	all.Wait()
	return errors.Join(outcomes...)
}
