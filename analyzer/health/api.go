package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const strategic = "application/strategic-merge-patch+json"

// apiError is an answer other than 2xx.
type apiError struct {
	code  int
	text  string
	after time.Duration
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.code, http.StatusText(e.code), e.text)
}

// callTimeout bounds one request.
const callTimeout = 10 * time.Second

// carryOut makes the call, or says what it would do.
func (c *Cluster) carryOut(ctx context.Context, j call) error {
	if c.o.DryRun {
		c.o.Log.Info("dry run: would write", "what", j.words)
		return nil
	}
	api := API{Server: c.o.Server, TokenFile: c.o.TokenFile, Client: c.o.Client}
	if j.read != nil {
		answer, err := api.Get(ctx, j.path)
		if err == nil {
			err = j.read(answer)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", j.words, err)
		}
		return nil
	}
	body, err := json.Marshal(j.body)
	if err != nil {
		panic("BUG: marshal request: " + err.Error())
	}
	header, err := api.header()
	if err != nil {
		return err
	}
	header.Set("Content-Type", j.content)
	if _, err := send(ctx, c.o.Client, j.method, api.url(j.path), header, body); err != nil {
		return fmt.Errorf("%s: %w", j.words, err)
	}
	c.o.Log.Info("written to the cluster", "what", j.words)
	return nil
}

// API is the way to the cluster's API server.
type API struct {
	Server    string       // base URL
	TokenFile string       // read again for each request; "" sends none
	Client    *http.Client // nil is http.DefaultClient
}

// Get returns what the API answers to a path.
func (a API) Get(ctx context.Context, path string) ([]byte, error) {
	header, err := a.header()
	if err != nil {
		return nil, err
	}
	client := a.Client
	if client == nil {
		client = http.DefaultClient
	}
	return send(ctx, client, http.MethodGet, a.url(path), header, nil)
}

func (a API) url(path string) string { return strings.TrimSuffix(a.Server, "/") + path }

func (a API) header() (http.Header, error) {
	header := http.Header{}
	if a.TokenFile == "" {
		return header, nil
	}
	token, err := os.ReadFile(a.TokenFile) // it is rotated under us
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return header, nil
}

// maxAnswer bounds what is read of an answer: a list of thousands of jobs.
const maxAnswer = 64 << 20

func send(ctx context.Context, client *http.Client, method, url string, header http.Header, body []byte) (text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	text, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode/100 == 2 {
		return text, err
	}
	e := &apiError{code: answer.StatusCode, text: string(text[:min(len(text), 300)])}
	if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = time.Duration(min(s, 3600)) * time.Second
	}
	return nil, e
}

// backoff waits longer after each failure in a row, and says so rarely.
type backoff struct {
	fails int
	until time.Time
	told  time.Time
}

const (
	firstWait = time.Second
	mostWait  = 5 * time.Minute
	tellEvery = 30 * time.Second
)

func (b *backoff) fail(err error, now time.Time, log *slog.Logger) time.Duration {
	wait := min(firstWait<<min(b.fails, 9), mostWait)
	var e *apiError
	if errors.As(err, &e) {
		switch {
		case e.after > 0:
			wait = e.after
		case e.code == http.StatusForbidden || e.code == http.StatusUnauthorized:
			wait = max(wait, time.Minute) // only a person can change it
		}
	}
	wait += time.Duration(rand.Int64N(int64(wait)/4 + 1))
	b.fails++
	b.until = now.Add(wait)
	if now.Sub(b.told) >= tellEvery {
		b.told = now
		log.Error("writing to the cluster fails", "error", err, "failures", b.fails, "again_in", wait.Round(time.Second))
	}
	return wait
}

func (b *backoff) reset(log *slog.Logger) {
	if b.fails > 0 {
		log.Info("writing to the cluster works again", "failures", b.fails)
	}
	*b = backoff{}
}
