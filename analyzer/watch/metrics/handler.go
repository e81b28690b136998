package metrics

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler answers /metrics, /healthz and /readyz; it is ready once a look has succeeded.
func (m *Watcher) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s := m.Status(); s.LastLook.IsZero() {
			http.Error(w, "no look has succeeded yet: "+s.LastError, http.StatusServiceUnavailable)
			return
		}

		fmt.Fprintln(w, "ok")
	})
	return mux
}
