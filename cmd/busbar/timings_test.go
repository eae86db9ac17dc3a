package main

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/prometheus/client_golang/prometheus"
)

// Each histogram has buckets for text and for protocol buffers.
func TestTimingsAreClassicAndNative(t *testing.T) {
	n := newTimings()
	n.http.WithLabelValues("client", "2xx").Observe(1)
	for _, h := range []*histogram{n.confirm, n.held, n.deliver, n.settle, n.commit, n.sync, n.apply} {
		h.observe(3 * time.Millisecond)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(n.all()...)
	families, err := r.Gather()
	if err != nil || len(families) != 8 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	for _, f := range families {
		h := f.GetMetric()[0].GetHistogram()
		if len(h.GetBucket()) < 10 || len(h.GetPositiveSpan()) == 0 || h.GetSampleCount() != 1 {
			t.Errorf("%s: %d classic buckets, %d spans, %d observations", f.GetName(), len(h.GetBucket()), len(h.GetPositiveSpan()), h.GetSampleCount())
		}
	}
}

// The stations of a message are timed once each, and by the time that they took.
func TestStationsAreTimed(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "")
	c := &trafficked{t: t, s: l.amqpSession(t, nil)}
	var err error
	c.out, err = c.s.NewSender(t.Context(), "q", nil)
	c.must(err)
	c.in, err = c.s.NewReceiver(t.Context(), "q", &amqp.ReceiverOptions{Credit: -1})
	c.must(err)
	c.send("a", "b", "c")
	const held = 300 * time.Millisecond
	time.Sleep(held) // the messages wait
	first := c.receive(c.in)
	time.Sleep(held) // the first one is held
	c.must(c.in.ModifyMessage(t.Context(), first, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	c.must(c.in.AcceptMessage(t.Context(), c.receive(c.in))) // the first one again, which is no first delivery
	c.must(c.in.AcceptMessage(t.Context(), c.receive(c.in)))
	got := l.awaitSeries(t, "counts", "/metrics", map[string]string{
		"busbar_send_confirm_seconds_count": "3", "busbar_enqueue_delivery_seconds_count": "2", "busbar_delivery_settle_seconds_count": "3",
	})
	sum := func(name string) float64 {
		v, err := strconv.ParseFloat(got[name], 64)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return v
	}
	// Waiting is in the time to the delivery, holding in that to the settlement, and neither is in that to the confirmation.
	if d := sum("busbar_enqueue_delivery_seconds_sum"); d < 3*held.Seconds() {
		t.Errorf("the deliveries took %v s", d)
	}
	if d := sum("busbar_delivery_settle_seconds_sum"); d < held.Seconds() {
		t.Errorf("the settlements took %v s", d)
	}
	for _, name := range []string{"busbar_commit", "busbar_log_sync", "busbar_apply"} {
		if n, d := sum(name+"_seconds_count"), sum(name+"_seconds_sum"); n < 6 || d <= 0 || d/n > 60 {
			t.Errorf("%s: %v times, %v s together", name, n, d)
		}
	}
	l.requestTo(t, l.opsHost(), http.MethodGet, "/nothing", "", "none")
	got = l.scrape(t, "/metrics")
	if n := sum(`busbar_http_request_duration_seconds_count{port="operations",status="4xx"}`); n < 1 {
		t.Errorf("%v refused requests of the operations port", n)
	}
	if n := sum(`busbar_http_request_duration_seconds_count{port="client",status="2xx"}`); n != 1 {
		t.Errorf("%v requests of clients, want the one that made the queue", n)
	}
	if _, ok := got[`busbar_commit_seconds_bucket{le="0.01"}`]; !ok {
		t.Error("no buckets in text")
	}
}
