package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/ring"
)

// connectionIdle is how long a connection to the health endpoints may be idle.
const connectionIdle = 5 * time.Second

// mostConnections bounds those connections, each of which is a descriptor that the rings
// and the store want: an eighth of what there are. Further callers wait.
func mostConnections() int { return min(max(ring.OpenFiles()/8, 4), 512) }

// Probes is where metrics and health are asked for. It answers also when there are no
// descriptors left, which is when it is asked: it holds one in reserve, to give it up for
// the next connection. What is answered gives its descriptor back, and the reserve is
// filled again with it.
type Probes struct {
	net.Listener

	mu    sync.Mutex
	spare *os.File // guarded by mu; nil while a connection has it
}

// Handler answers /metrics with what collect sends, anew for each scrape: nothing is counted twice, and what
// is gone leaves no series behind. It answers /healthz, which says that the process runs, and has /readyz
// answered by ready.
func Handler(collect func(counter, gauge Emit), ready http.Handler) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		of := func(t prometheus.ValueType) Emit {
			return func(name, help string, v float64, label ...string) {
				names, values := label[:len(label)/2], label[len(label)/2:]
				ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("laggard_"+name, help, names, nil), t, v, values...)
			}
		}
		collect(of(prometheus.CounterValue), of(prometheus.GaugeValue))
	}))

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /readyz", ready)
	return mux
}

// ListenProbes listens at the TCP address of metrics and health, and says so.
func ListenProbes(address string, log *slog.Logger) (*Probes, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w; name another address with --metrics, or \"\" for none", err)
	}

	p := &Probes{Listener: netutil.LimitListener(l, mostConnections())}
	if err := p.reserve(); err != nil {
		return nil, fmt.Errorf("serve metrics: keep a descriptor in reserve: %w", errors.Join(err, l.Close()))
	}

	log.Info("serving metrics", "address", l.Addr().String())
	return p, nil
}

// Serve answers metrics and health until ctx ends, then lets what is being answered
// finish.
func (p *Probes) Serve(ctx context.Context, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: connectionIdle}
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			_ = p.reserve() // else the next one does
		}
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped <- s.Shutdown(late)
	})
	err := s.Serve(p)
	if !stop() {
		err = errors.Join(<-stopped)
	}

	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}

	return err
}

// reserve takes a descriptor into reserve, unless one is there.
func (p *Probes) reserve() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare == nil {
		p.spare, err = os.Open(os.DevNull)
	}

	return err
}

// Accept implements net.Listener.
func (p *Probes) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
		return c, err
	}

	p.mu.Lock()
	if p.spare != nil {
		p.spare.Close()
		p.spare = nil
	}

	c, err = p.Listener.Accept() // one waits: it was refused a descriptor just now
	p.mu.Unlock()
	if err != nil {
		_ = p.reserve()
	}

	return c, err
}
