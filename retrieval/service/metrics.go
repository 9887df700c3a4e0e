package service

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are those of one service, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	queries  prometheus.Histogram
	underWay prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mempo_retrieve_requests_total", Help: "Requests answered.",
		}, []string{"path", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mempo_retrieve_request_seconds", Help: "Time of a request, its wait included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"path"}),
		queries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mempo_retrieve_batch_queries", Help: "Queries that were searched together.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mempo_retrieve_under_way", Help: "Requests under way.",
		}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.queries, m.underWay)
	return m
}

func (m *metrics) showWaiting(waiting []func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mempo_retrieve_waiting", Help: "Requests that wait for a search under way.",
	}, func() float64 {
		sum := 0
		for _, count := range waiting {
			sum += count()
		}
		return float64(sum)
	}))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) batch(queries int) { m.queries.Observe(float64(queries)) }

// answered counts a request; paths that do not exist are one.
func (m *metrics) answered(path string, status int, took time.Duration) {
	if path != "/retrieve" && path != "/access" && path != "/health" {
		path = "other"
	}
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(path).Observe(took.Seconds())
}
