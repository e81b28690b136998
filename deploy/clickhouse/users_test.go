// Package clickhouse holds the example of laggard's users to the server: there is
// no code here, only files that a person copies.
package clickhouse

import (
	"encoding/xml"
	"os"
	"strings"
	"testing"

	schema "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chdb"
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

	e := chdb.Start(t)
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
	if settings < 6 || grants != 3 {
		t.Errorf("%d settings and %d grants were looked at", settings, grants)
	}
}
