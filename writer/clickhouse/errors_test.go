package clickhouse_test

import (
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/clickhouse"
)

// TestErrorsNameObjectCauseRemedy: what a person sees when a store can't be used.
func TestErrorsNameObjectCauseRemedy(t *testing.T) {
	server := chtest.Start(t)
	for name, c := range map[string]struct {
		store string
		words []string
	}{
		"connection_refused":  {"clickhouse://127.0.0.1:1/x", []string{"127.0.0.1:1", "connection refused", "start the server"}},
		"no_database":         {server.Store("nowhere"), []string{"nowhere", "create the database"}},
		"tls_to_a_plain_port": {server.Store("default") + "?secure=true", []string{server.Addr(), "server_name"}},
		"wrong_user":          {strings.Replace(server.Store("default"), "://", "://eve@", 1), []string{"eve", "user in the store URL"}},
	} {
		err := open(t, c.store).Create(t.Context())
		for _, word := range c.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v; want a word on %q", name, err, word)
			}
		}
	}

	if _, err := clickhouse.Open("clickhouse://h/d?ca=/nowhere&secure=1", clickhouse.Options{}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a CA that is not there: %v", err)
	}
}
