package orders

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/kits/go/busbartest"
)

func TestAnOrderIsReceived(t *testing.T) {
	broker := busbartest.Start(t) // it ends with the test
	queue := broker.Queue(t, "orders", map[string]any{"LockDuration": "PT5S", "MaxDeliveryCount": 1})

	client, err := azservicebus.NewClientFromConnectionString(broker.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("an order")}, nil); err != nil {
		t.Fatal(err)
	}

	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := receiver.ReceiveMessages(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(messages[0].Body); got != "an order" {
		t.Errorf("the body is %q", got)
	}
}
