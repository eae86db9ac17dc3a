// Command flow lets KEDA's scaler watch queues and subscriptions as KEDA's operator does; one line for
// each scenario.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	v2 "k8s.io/api/autoscaling/v2"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

// limit bounds one scenario; they take a second.
const limit = time.Minute

// bench is what a scenario works with.
type bench struct {
	ctx        context.Context
	connection string
	admin      *admin.Client
	client     *azservicebus.Client
}

func main() {
	b := &bench{connection: os.Getenv("BUSBAR_ADMIN")}
	var err error
	if b.admin, err = admin.NewClientFromConnectionString(b.connection, nil); err == nil {
		b.client, err = azservicebus.NewClientFromConnectionString(b.connection, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("sdk\tkeda azure-servicebus\t%s\n", os.Getenv("KEDA_VERSION"))
	all := []struct {
		id  string
		run func(*bench) error
	}{
		{"keda-queue", queueLength}, {"keda-subscription", subscriptionLength},
		{"keda-expression", expression}, {"keda-missing", missing}, {"keda-key", wrongKey},
	}
	for _, s := range all {
		began, state, text := time.Now(), "pass", ""
		if err := b.try(s.run); err != nil {
			state, text = "fail", strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Printf("scenario\t%s\t%s\t%d\t%s\n", s.id, state, time.Since(began).Milliseconds(), text)
	}
	fmt.Printf("end\t%d\n", len(all))
}

func (b *bench) try(run func(*bench) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	at := *b
	at.ctx = ctx
	return run(&at)
}

// scaler is one of KEDA, made from the settings of a trigger.
func (b *bench) scaler(connection string, trigger map[string]string) (scalers.Scaler, error) {
	return scalers.NewAzureServiceBusScaler(&scalersconfig.ScalerConfig{
		TriggerMetadata: trigger, AuthParams: map[string]string{"connection": connection},
		GlobalHTTPTimeout: 10 * time.Second, MetricType: v2.AverageValueMetricType,
	})
}

// wants asks a scaler and compares with the length and with whether anything should run at all.
func (b *bench) wants(s scalers.Scaler, when string, length int64, active bool) error {
	got, isActive, err := s.GetMetricsAndActivity(b.ctx, "m")
	if err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	if len(got) != 1 || got[0].MetricName != "m" || got[0].Value.MilliValue() != 1000*length ||
		isActive != active {
		return fmt.Errorf("%s: %v, active %v, want %d and %v", when, got, isActive, length, active)
	}
	return nil
}

func (b *bench) send(entity string, count int, at *time.Time) error {
	s, err := b.client.NewSender(entity, nil)
	if err != nil {
		return err
	}
	for range count {
		m := &azservicebus.Message{Body: []byte("work"), ScheduledEnqueueTime: at}
		if err := s.SendMessage(b.ctx, m, nil); err != nil {
			return err
		}
	}
	return s.Close(b.ctx)
}

// take dead-letters one message and completes the others.
func (b *bench) take(r *azservicebus.Receiver, count int) error {
	for n := 0; n < count; {
		ms, err := r.ReceiveMessages(b.ctx, count-n, nil)
		if err != nil {
			return err
		}
		for _, m := range ms {
			if n == 0 {
				err = r.DeadLetterMessage(b.ctx, m, nil)
			} else {
				err = r.CompleteMessage(b.ctx, m, nil)
			}
			if err != nil {
				return err
			}
			n++
		}
	}
	return r.Close(b.ctx)
}

// lengths is the way of a queue or subscription: nothing, work, work that is done.
func (b *bench) lengths(trigger map[string]string, target string, r *azservicebus.Receiver) error {
	s, err := b.scaler(b.connection, trigger)
	if err != nil {
		return err
	}
	trigger["activationMessageCount"] = "5"
	patient, err := b.scaler(b.connection, trigger)
	if err != nil {
		return err
	}
	later := time.Now().Add(time.Hour)
	for _, step := range []struct {
		when            string
		do              func() error
		length          int64
		active, patient bool
	}{
		{"empty", func() error { return nil }, 0, false, false},
		{"5 sent", func() error { return b.send(target, 5, nil) }, 5, true, false},
		{"6 sent", func() error { return b.send(target, 1, nil) }, 6, true, true},
		{"2 for later", func() error { return b.send(target, 2, &later) }, 6, true, true},
		{"4 taken, 1 of them dead", func() error { return b.take(r, 4) }, 2, true, false},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.when, err)
		}
		if err := b.wants(s, step.when, step.length, step.active); err != nil {
			return err
		}
		if err := b.wants(patient, step.when+", activated by more than 5", step.length, step.patient); err != nil {
			return err
		}
	}
	return s.Close(b.ctx)
}

func queueLength(b *bench) error {
	if _, err := b.admin.CreateQueue(b.ctx, "keda/work", nil); err != nil {
		return err
	}
	r, err := b.client.NewReceiverForQueue("keda/work", nil)
	if err != nil {
		return err
	}
	return b.lengths(map[string]string{"queueName": "keda/work"}, "keda/work", r)
}

func subscriptionLength(b *bench) error {
	if _, err := b.admin.CreateTopic(b.ctx, "keda-events", nil); err != nil {
		return err
	}
	if _, err := b.admin.CreateSubscription(b.ctx, "keda-events", "all", nil); err != nil {
		return err
	}
	r, err := b.client.NewReceiverForSubscription("keda-events", "all", nil)
	if err != nil {
		return err
	}
	trigger := map[string]string{"topicName": "keda-events", "subscriptionName": "all"}
	return b.lengths(trigger, "keda-events", r)
}

// expression: a scaler may watch all queues, or all subscriptions of a topic, whose names match.
func expression(b *bench) error {
	const topic = "keda-many"
	if _, err := b.admin.CreateTopic(b.ctx, topic, nil); err != nil {
		return err
	}
	for i, name := range []string{"keda-a", "keda-b", "keda-c"} {
		if _, err := b.admin.CreateQueue(b.ctx, name, nil); err != nil {
			return err
		}
		if err := b.send(name, 2*i, nil); err != nil {
			return err
		}
		if _, err := b.admin.CreateSubscription(b.ctx, topic, name, nil); err != nil {
			return err
		}
	}
	if err := b.send(topic, 2, nil); err != nil {
		return err
	}
	for _, t := range []struct {
		trigger map[string]string
		length  int64
	}{
		{map[string]string{"queueName": "keda-[abc]", "operation": "sum"}, 6},
		{map[string]string{"queueName": "keda-[abc]", "operation": "max"}, 4},
		{map[string]string{"queueName": "keda-[abc]", "operation": "avg"}, 2},
		{map[string]string{"topicName": topic, "subscriptionName": "keda-[ab]"}, 4},
	} {
		t.trigger["useRegex"] = "true"
		s, err := b.scaler(b.connection, t.trigger)
		if err != nil {
			return err
		}
		if err := b.wants(s, fmt.Sprint(t.trigger), t.length, true); err != nil {
			return err
		}
	}
	return nil
}

// missing: nothing runs for what does not exist, and the operator is told.
func missing(b *bench) error {
	for _, t := range []struct {
		trigger map[string]string
		text    string
	}{
		{map[string]string{"queueName": "keda-none"}, "queue keda-none doesn't exist"},
		{map[string]string{"topicName": "keda-events", "subscriptionName": "none"},
			"subscription none doesn't exist in topic keda-events"},
	} {
		s, err := b.scaler(b.connection, t.trigger)
		if err != nil {
			return err
		}
		if _, active, err := s.GetMetricsAndActivity(b.ctx, "m"); active || err == nil || err.Error() != t.text {
			return fmt.Errorf("active %v, %v; want %q", active, err, t.text)
		}
	}
	return nil
}

func wrongKey(b *bench) error {
	s, err := b.scaler(b.connection+"x", map[string]string{"queueName": "keda/work"})
	if err != nil {
		return err
	}
	if _, active, err := s.GetMetricsAndActivity(b.ctx, "m"); active || err == nil ||
		!strings.Contains(err.Error(), "401") {
		return fmt.Errorf("active %v, %v; want 401", active, err)
	}
	return nil
}
