package health

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestServerThatStarts: an API server forbids everything until it has read its roles. It is asked
// again within seconds, and a right that stays missing less and less often.
func TestServerThatStarts(t *testing.T) {
	a, c := newAPI(t), newClock()
	begun, starts := c.Now(), 5*time.Second
	a.answer = func(int, *http.Request) (int, string) {
		if c.Now().Sub(begun) < starts {
			return http.StatusForbidden, ""
		}

		return 0, ""
	}
	h := start(t, a, c, nil)
	h.Observe(slow("j", "n1"))
	for len(a.status["n1"]) == 0 && c.Now().Sub(begun) < time.Minute {
		h.sync(t.Context())
		c.pass(time.Second)
	}

	if took := c.Now().Sub(begun); took > 3*starts {
		t.Errorf("forbidden for %v: n1 is written after %v, want within seconds", starts, took)
	}

	starts = time.Duration(1 << 62) // forbidden from now on
	h = start(t, a, c, nil)
	h.Observe(slow("j", "n1"))
	calls := a.count("")
	for range 3600 {
		h.sync(t.Context())
		c.pass(time.Second)
	}

	if n := a.count("") - calls; n < 12 || n > 25 {
		t.Errorf("forbidden for an hour: asked %d times, want some in the first minutes and one in five minutes then", n)
	}

	var b backoff
	for want := time.Second; want <= mostWait; want *= 2 {
		err := fmt.Errorf("list nodes: %w", &apiError{code: http.StatusForbidden})
		if wait := b.fail(err, c.Now(), slog.New(slog.DiscardHandler)); wait < want || wait > want+want/4 {
			t.Errorf("after %d answers that the list is forbidden %v, want %v and up to a quarter more", b.fails, wait, want)
		}
	}
}

// TestRefusedNode: what the server refuses of one node holds up no other, and is tried
// again.
func TestRefusedNode(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity} {
		a, c := newAPI(t), newClock()
		open := false
		a.answer = func(_ int, r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "/n1/") && !open {
				return code, ""
			}

			return 0, ""
		}
		h := start(t, a, c, nil)
		h.Observe(slow("j", "n1", "n2"))
		for range 4 {
			h.sync(t.Context())
		}

		if n := a.count("PATCH /api/v1/nodes/n1/"); n != 1 || len(a.status["n2"]) != 1 {
			t.Errorf("%d: %d calls for the refused node, the other has %v", code, n, a.status["n2"])
		}

		open = true
		c.pass(2 * time.Minute)
		c.sync(t, h, 2)
		if len(a.status["n1"]) != 1 {
			t.Errorf("%d: never tried again: %v", code, a.calls)
		}
	}
}
