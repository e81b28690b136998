package health

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// keyHeader is the header with a message's key: the same for what is said a second time.
const keyHeader = "Laggard-Message"

// Webhook posts a job's verdict as JSON when it changed: the newest one of each
// job, until it is taken.
type Webhook struct {
	url    string
	client *http.Client
	log    *slog.Logger
	now    func() time.Time
	wake   Waker

	// mu guards what follows, and is free while a post is under way.
	mu      sync.Mutex
	waiting map[string]post // by job
	back    backoff
}

// post is a verdict as JSON, and its key.
type post struct{ key, body string }

// NewWebhook returns a Webhook.
func NewWebhook(url string, log *slog.Logger) *Webhook {
	return &Webhook{url: url, client: http.DefaultClient, log: log, now: time.Now, wake: NewWaker(), waiting: map[string]post{}}
}

// Changed queues the verdict, as the message of this key.
func (h *Webhook) Changed(key string, v *verdict.Verdict) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: marshal verdict: " + err.Error())
	}

	h.mu.Lock()
	h.waiting[v.Job] = post{key, string(b)}
	h.mu.Unlock()
	h.wake.Wake()
}

// Run posts until ctx ends.
func (h *Webhook) Run(ctx context.Context) error { return h.wake.Run(ctx, h.send) }

// send posts what waits and returns how long to wait for the next call.
func (h *Webhook) send(ctx context.Context) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if wait := h.back.until.Sub(h.now()); wait > 0 {
		return wait
	}

	for _, job := range slices.Sorted(maps.Keys(h.waiting)) {
		m := h.waiting[job]
		h.mu.Unlock()
		_, err := send(ctx, h.client, http.MethodPost, h.url, http.Header{"Content-Type": {jsonBody}, keyHeader: {m.key}}, []byte(m.body))
		h.mu.Lock()
		if err != nil {
			return h.back.fail(fmt.Errorf("post verdict on job %s: %w", job, err), h.now(), h.log)
		}

		h.back.reset(h.log)
		// A newer verdict that came meanwhile stays to be posted.
		if h.waiting[job] == m {
			delete(h.waiting, job)
		}
	}

	return idle
}
