package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/transport/audit"
)

// byRequest is why a reload happens that somebody asked for over HTTP.
const byRequest = "request"

// reloadPath is where an operator has the node read its configuration again.
const reloadPath = "/api/reload"

// withReload answers POST /api/reload with what has changed, or with what is wrong. opsGuard asks for a token.
func (n *node) withReload(next http.Handler) http.Handler {
	// A page in a browser can reach the loopback interface: it must not command.
	reload := http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, err := n.reloader.reload(r.Context(), byRequest)
		if err != nil {
			answerJSON(w, http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
			return
		}
		entry := audit.Of(r.Context())
		entry.Result("changed", done.Changed)
		entry.Result("needsRestart", done.Restart)
		answerJSON(w, http.StatusOK, done)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != reloadPath {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			answerJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "ask by POST"})
			return
		}
		reload.ServeHTTP(w, r)
	})
}

// reloadCollector tells how reloads went, and when certificates end.
type reloadCollector struct {
	n                               *node
	reloads, last, lastGood, ending *prometheus.Desc
}

func newReloadCollector(n *node) *reloadCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("busbar_"+name, help, labels, nil)
	}
	return &reloadCollector{n: n,
		reloads:  desc("config_reloads_total", "How often the configuration was read again, by result.", "result"),
		last:     desc("config_last_reload_successful", "0 if the last reload was refused, otherwise 1."),
		lastGood: desc("config_last_reload_success_timestamp_seconds", "When the configuration was last read without a mistake; the start counts."),
		ending: desc("certificate_expiry_timestamp_seconds",
			"When the first of the certificates ends: those that the node shows, or those of tls-ca.", "use"),
	}
}

// Describe implements prometheus.Collector.
func (c *reloadCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.reloads, c.last, c.lastGood, c.ending} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *reloadCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.n.reloader
	ch <- prometheus.MustNewConstMetric(c.reloads, prometheus.CounterValue, float64(r.applied.Load()), "applied")
	ch <- prometheus.MustNewConstMetric(c.reloads, prometheus.CounterValue, float64(r.refused.Load()), "refused")
	good := 1.0
	if r.lastFailed.Load() {
		good = 0
	}
	ch <- prometheus.MustNewConstMetric(c.last, prometheus.GaugeValue, good)
	ch <- prometheus.MustNewConstMetric(c.lastGood, prometheus.GaugeValue, float64(r.lastSuccess.Load())/1000)
	held := c.n.certificates.Load()
	if end := earliest(held.chain()); !end.IsZero() {
		ch <- prometheus.MustNewConstMetric(c.ending, prometheus.GaugeValue, float64(end.Unix()), "shown")
	}
	if end := earliest(held.authorities); !end.IsZero() {
		ch <- prometheus.MustNewConstMetric(c.ending, prometheus.GaugeValue, float64(end.Unix()), "authority")
	}
}
