package health

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Types of bodies: what is made, and how a patch is merged into what is there.
const (
	jsonBody       = "application/json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json" // lists by their key, where they have one
	applyPatch     = "application/apply-patch+yaml"
)

// apiError is an answer other than 2xx.
type apiError struct {
	code  int
	text  string
	after time.Duration
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.code, http.StatusText(e.code), e.text)
}

// answered reports whether err is an answer with one of these codes.
func answered(err error, codes ...int) bool {
	var e *apiError
	return errors.As(err, &e) && slices.Contains(codes, e.code)
}

// missing reports whether an answer says that the thing asked for is not there.
func missing(err error) bool { return answered(err, http.StatusNotFound, http.StatusGone) }

// callTimeout bounds one request.
const callTimeout = 10 * time.Second

// API is the way to the cluster's API server.
type API struct {
	Server    string       // base URL
	TokenFile string       // read again for each request; "" sends none
	Client    *http.Client // nil is http.DefaultClient
	Namespace string       // of the pod that this process runs in, "" outside of one
}

// Get decodes what the API answers to a path into the value that into points to.
func (a API) Get(ctx context.Context, path string, into any) error {
	return a.call(ctx, http.MethodGet, path, "", nil, into)
}

// call sends a request as the account that the token is of. body, nil for none, goes as JSON, whose type
// content is; the answer is decoded into the value that into points to, unless that is nil.
func (a API) call(ctx context.Context, method, path, content string, body, into any) error {
	header := http.Header{}
	var sent []byte
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			panic("BUG: marshal request: " + err.Error())
		}

		sent = b
		header.Set("Content-Type", content)
	}

	if a.TokenFile != "" {
		token, err := os.ReadFile(a.TokenFile) // it is rotated under us
		if err != nil {
			return fmt.Errorf("read token: %w", err)
		}

		header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}

	answer, err := send(ctx, cmp.Or(a.Client, http.DefaultClient), method, strings.TrimSuffix(a.Server, "/")+path, header, sent)
	if err != nil || into == nil {
		return err
	}

	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("decode the answer to %s %s: %w", method, path, err)
	}

	return nil
}

// maxAnswer bounds what is read of an answer: a list of thousands of jobs.
const maxAnswer = 64 << 20

// send makes a request and returns the answer's body. Any answer but 2xx is an *apiError.
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

// backoff waits longer after each failure in a row, and says so rarely. No answer is waited for
// longer at once: an API server that is only just starting forbids everything until it has read
// its roles, which takes seconds, and a right that is missing is asked for rarely soon enough.
type backoff struct {
	fails int
	until time.Time
	told  time.Time
}

// Waits after a failure double from the first to the most, which the tenth reaches; tellEvery is how often a lasting one is
// logged.
const (
	firstWait = time.Second
	mostWait  = 5 * time.Minute
	tellEvery = 30 * time.Second
)

// fail notes a failure and returns how long to wait: twice as long as before, as the server says where it
// does, and up to a quarter more, so that many watchers don't come at once.
func (b *backoff) fail(err error, now time.Time, log *slog.Logger) time.Duration {
	wait := min(firstWait<<min(b.fails, 9), mostWait)
	var e *apiError
	if errors.As(err, &e) && e.after > 0 {
		wait = e.after
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

// reset notes that a call was answered.
func (b *backoff) reset(log *slog.Logger) {
	if b.fails > 0 {
		log.Info("writing to the cluster works again", "failures", b.fails)
	}

	*b = backoff{}
}
