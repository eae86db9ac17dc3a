package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/transport/audit"
)

// timings are the histograms of a node: how long the stations of a message take. A scrape in the format of protocol
// buffers gets them as native histograms, one in text as classic ones.
type timings struct {
	confirm, held, deliver, settle, commit, sync, apply *histogram
	http                                                *prometheus.HistogramVec // of the library: requests are few
}

// timingBuckets are the classic buckets, in seconds. Deliveries may wait for hours, and have some more.
func timingBuckets(more ...float64) []float64 {
	return append([]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, more...)
}

func newTimings() *timings {
	plain := func(name, help string, more ...float64) *histogram {
		return newHistogram("busbar_"+name+"_seconds", help, timingBuckets(more...))
	}
	return &timings{
		confirm: plain("send_confirm", "From the last byte of a delivery of a client until it is stored, and its confirmation is on its way."),
		held:    plain("send_held", "How long a request of a sender was held because receivers are served faster meanwhile."),
		deliver: plain("enqueue_delivery", "From the time at which a message can be received until its first delivery is written.",
			60, 600, 3600, 86400),
		settle: plain("delivery_settle", "From the delivery of a message until its settlement is applied.", 60, 600, 3600),
		commit: plain("commit", "From the proposal of a log entry until a majority has it and it is applied here."),
		sync:   plain("log_sync", "Writing log entries to the disk and waiting for it."),
		apply:  plain("apply", "Applying the entries of one call of raft to the state machine."),
		http: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "busbar_http_request_duration_seconds", Buckets: timingBuckets(),
			Help:                        "Requests to the management API and the operations port, by port and by the class of the status.",
			NativeHistogramBucketFactor: 1.2, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour},
			[]string{"port", "status"}),
	}
}

// all lists the histograms.
func (t *timings) all() []prometheus.Collector {
	return []prometheus.Collector{t.confirm, t.held, t.deliver, t.settle, t.commit, t.sync, t.apply, t.http}
}

// timed notes how long requests take that come by the port.
func (t *timings) timed(port string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, seen := time.Now(), audit.NewStatusWriter(w)
		defer func() {
			t.http.WithLabelValues(port, strconv.Itoa(seen.Status/100)+"xx").Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(seen, r)
	})
}
