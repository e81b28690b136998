package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestWatch_Webhook runs the command until a webhook has heard of the slow node.
func TestWatch_Webhook(t *testing.T) {
	dir, _, _ := watchedJob(t, "compute-1.5", 31)
	heard := make(chan string, 100)
	a := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // the test looks at what came
		heard <- r.Method + " " + r.URL.Path + " " + string(b)
	}))
	defer a.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := watchOptions{source: dir, output: "log", every: 10 * time.Millisecond, forget: 1 << 60, lag: time.Minute, state: t.TempDir(),
		cluster: clusterOptions{maxNodes: 1, webhook: a.URL + "/hook"}}
	done := make(chan error, 1)
	go func() { done <- runWatch(ctx, o, io.Discard) }()
	want := map[string]string{
		"POST /hook ": `"cause":"compute"`,
	}
	for len(want) > 0 {
		select {
		case got := <-heard:
			for k, in := range want {
				if strings.HasPrefix(got, k) && strings.Contains(got, in) {
					delete(want, k)
				}
			}
		case err := <-done:
			t.Fatalf("ended: %v; not heard: %v", err, want)
		case <-ctx.Done():
			t.Fatalf("not heard: %v", want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
