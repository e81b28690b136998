// Package clickhouse holds the example of laggard's users to the server: there is
// no code here, only files that a person copies.
package clickhouse

import (
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	schema "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// node is any element.
type node struct {
	XMLName xml.Name
	Text    string `xml:",chardata"`
	Nodes   []node `xml:",any"`
}

// walk calls f for every element with the names of those around it.
func (n node) walk(path string, f func(path string, n node)) {
	path += "/" + n.XMLName.Local
	f(path, n)
	for _, c := range n.Nodes {
		c.walk(path, f)
	}
}

// TestUsersAreUnderstood asks the engine whether it knows each setting of the
// profiles and can parse each grant, to which the server adds TO and the user.
func TestUsersAreUnderstood(t *testing.T) {
	b, err := os.ReadFile("laggard.xml")
	if err != nil {
		t.Fatal(err)
	}

	var root node
	if err := xml.Unmarshal(b, &root); err != nil {
		t.Fatal(err)
	}

	e := chtest.StartEngine(t)
	settings, grants := 0, 0
	root.walk("", func(path string, n node) {
		name := schema.Literal(n.XMLName.Local)
		switch {
		case strings.HasPrefix(path, "/clickhouse/profiles/") && strings.Count(path, "/") == 4 && n.XMLName.Local != "constraints":
			out, err := e.Query("SELECT count() FROM system.settings WHERE name = " + name)
			if err != nil || strings.TrimSpace(out) != "1" {
				t.Errorf("setting %s: %q, %v", path, out, err)
			}

			settings++
		case strings.HasSuffix(path, "/grants/query"):
			if _, err := e.Query("SELECT formatQuery(" + schema.Literal(strings.TrimSpace(n.Text)+" TO laggard") + ")"); err != nil {
				t.Errorf("%s: %v", n.Text, err)
			}

			grants++
		}
	})
	if settings < 6 || grants != 5 {
		t.Errorf("%d settings and %d grants were looked at", settings, grants)
	}
}

// TestUsersAreTaken loads the file into the engine: the agent's user may make every table and
// insert, and see what is under way; Grafana's may read, and nothing else.
func TestUsersAreTaken(t *testing.T) {
	b, err := os.ReadFile("laggard.xml")
	if err != nil {
		t.Fatal(err)
	}

	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("secret")))
	t.Setenv("LAGGARD_AGENT_SHA256", hash)
	t.Setenv("LAGGARD_GRAFANA_SHA256", hash)
	e := chtest.StartEngineWithUsers(t, strings.NewReplacer("<profiles>", "<profiles><default/>", "<users>", "<quotas><default/></quotas><users>"+
		"<default><password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota></default>").Replace(string(b)))
	if _, err := e.Query("CREATE DATABASE laggard"); err != nil {
		t.Fatal(err)
	}

	ask := func(user, password, query string) error {
		r, err := http.Post("http://"+e.Address+"/?user="+user+"&password="+password, "", strings.NewReader(query))
		if err != nil {
			return err
		}

		defer r.Body.Close()
		if text, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK {
			return errors.Join(err, errors.New(string(text)))
		}

		return nil
	}
	for _, q := range append(schema.Statements(schema.Latest, schema.Options{Database: "laggard"}),
		"ALTER TABLE laggard.steps ADD COLUMN later Int64", "INSERT INTO laggard.steps (job) VALUES ('j')", "SELECT count() FROM laggard.steps",
		"SELECT query_id FROM system.processes", "SELECT `entries.query_id` FROM system.asynchronous_inserts") {
		if err := ask("laggard_agent", "secret", q); err != nil {
			t.Errorf("agent: %.80s: %v", q, err)
		}
	}

	if err := ask("laggard_grafana", "secret", "SELECT count() FROM laggard.steps"); err != nil {
		t.Errorf("grafana: %v", err)
	}

	for _, no := range [][3]string{
		{"laggard_agent", "wrong", "SELECT 1"}, {"laggard_agent", "secret", "DROP TABLE laggard.steps"},
		{"laggard_grafana", "secret", "INSERT INTO laggard.steps (job) VALUES ('j')"},
	} {
		if ask(no[0], no[1], no[2]) == nil {
			t.Errorf("%s with %s may %s", no[0], no[1], no[2])
		}
	}
}
