// Package monitoring proves the alert rules and the dashboards of scripts/monitoring with the library of Prometheus.
//
// It is a module of its own, so that nobody else depends on that library. Start with rules_test.go, then scrape_test.go.
package monitoring
