// Command topics publishes trades. Each subscription gets those that its rule selects, and one rule marks what it
// passes on.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const topic = "topics-trades"

// subscriptions and how many of the trades each gets; Config.json has their rules.
var subscriptions = []struct {
	name  string
	count int
}{{"all", 3}, {"europe", 2}, {"large", 2}}

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
	sender, err := client.NewSender(topic, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	subject := "trade"
	for _, trade := range []struct {
		region string
		amount int64
	}{{"eu", 500}, {"eu", 5000}, {"us", 2000}} {
		properties := map[string]any{"region": trade.region, "amount": trade.amount}
		if err := sender.SendMessage(ctx, &azservicebus.Message{Subject: &subject, ApplicationProperties: properties}, nil); err != nil {
			return err
		}
	}
	for _, s := range subscriptions {
		if err := show(ctx, client, s.name, s.count); err != nil {
			return err
		}
	}
	return nil
}

func show(ctx context.Context, client *azservicebus.Client, subscription string, count int) error {
	receiver, err := client.NewReceiverForSubscription(topic, subscription, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	for range count {
		messages, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		m, desk := messages[0], "no desk"
		if set, ok := m.ApplicationProperties["desk"].(string); ok {
			desk = set
		}
		fmt.Printf("%s: %v %v, %s\n", subscription, m.ApplicationProperties["region"], m.ApplicationProperties["amount"], desk)
		if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
			return err
		}
	}
	left, err := receiver.PeekMessages(ctx, 10, nil)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s has %d messages more than its rule selects", subscription, len(left))
	}
	return nil
}
