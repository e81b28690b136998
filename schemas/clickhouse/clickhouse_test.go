package clickhouse

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

var old = Version{Major: 18, Minor: 16, Patch: 1}

var structs = map[string]any{
	row.RanksTable: row.Rank{}, row.StepsTable: row.Step{}, row.CommunicationsTable: row.Communication{},
	row.RecordsTable: row.Record{}, row.VerdictsTable: row.Verdict{}, row.LedgerTable: row.Ledger{},
}

func columnType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "String"
	case reflect.Slice:
		return "Array(" + columnType(t.Elem()) + ")"
	}

	name := t.Kind().String() // uint32 → UInt32
	if rest, ok := strings.CutPrefix(name, "uint"); ok {
		return "UInt" + rest
	}

	return "Int" + strings.TrimPrefix(name, "int")
}

func TestColumnsAreThoseOfTheRows(t *testing.T) {
	for _, v := range []Version{old, Latest} {
		for _, table := range Tables {
			typ := reflect.TypeOf(structs[table])
			var want []Column
			for i := range typ.NumField() {
				f := typ.Field(i)
				want = append(want, Column{Name: f.Tag.Get("col"), Type: columnType(f.Type)})
			}

			var got []Column
			for _, c := range columns(v, table) {
				if c.Name == tsColumn {
					if v == old {
						t.Errorf("%s: the plain DDL has %s", table, tsColumn)
					}

					continue
				}

				if c.Type == "LowCardinality(String)" {
					c.Type = "String"
				}

				got = append(got, c)
			}

			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s on %s:\n got %v\nwant %v", table, v, got, want)
			}
		}
	}
}

func TestPlainHasNothingNew(t *testing.T) {
	for _, s := range Statements(old, Options{TTL: map[string]int{row.StepsTable: 3}}) {
		for _, word := range []string{"CODEC", "LowCardinality", "DateTime64", "TTL", "INDEX", "{{", "dedup"} {
			if strings.Contains(s, word) {
				t.Errorf("plain DDL has %s:\n%s", word, s)
			}
		}
	}
}

// TestManyParts: who has the small bounds on parts by default gets those of newer servers.
func TestManyParts(t *testing.T) {
	const bounds = "parts_to_delay_insert = 1000, parts_to_throw_insert = 3000"
	for v, want := range map[Version]bool{old: true, {Major: 22, Minor: 3}: true, {Major: 23, Minor: 5}: true, {Major: 23, Minor: 6}: false, Latest: false} {
		for _, table := range Tables {
			s := statements(v, Options{}, table)[0]
			if strings.Contains(s, bounds) != want || strings.Count(s, "SETTINGS ") > 1 || strings.HasSuffix(strings.TrimSpace(s), "SETTINGS") {
				t.Errorf("%s: bounds on parts %t wanted:\n%s", v, want, s)
			}
		}
	}
}

func TestCurrentCarriesThePartitionInTs(t *testing.T) {
	for _, s := range Statements(Latest, Options{TTL: map[string]int{row.RecordsTable: 14}}) {
		if !strings.Contains(s, "DateTime64(9, 'UTC') MATERIALIZED") || !strings.Contains(s, "TYPE minmax") {
			t.Errorf("no materialised ts with an index:\n%s", s)
		}

		if ttl := strings.Contains(s, "TTL toDateTime(`ts`) + INTERVAL 14 DAY"); ttl != strings.Contains(s, "EXISTS `records`") {
			t.Errorf("TTL %t in:\n%s", ttl, s)
		}
	}
}

func TestClusterWritesLocalReadsDistributed(t *testing.T) {
	all := Statements(Latest, Options{Cluster: "main", Database: "laggard"})
	if len(all) != 1+2*len(Tables) {
		t.Fatalf("%d statements, want %d", len(all), 1+2*len(Tables))
	}

	if unnamed := Statements(Latest, Options{Cluster: "main"}); !slices.Equal(unnamed, all) {
		t.Errorf("without a database:\n%s", strings.Join(unnamed, ";\n"))
	}

	text := strings.Join(all, ";\n")
	for _, want := range []string{
		"CREATE DATABASE IF NOT EXISTS `laggard` ON CLUSTER `main`",
		"CREATE TABLE IF NOT EXISTS `laggard`.`steps_local` ON CLUSTER `main`",
		"ReplicatedMergeTree('/clickhouse/tables/{shard}/laggard/steps', '{replica}')",
		"ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/laggard/ranks', '{replica}', `version`)",
		"Distributed('main', 'laggard', 'steps_local', rand())",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestMissingAddsColumns(t *testing.T) {
	have := map[string]bool{}
	for _, c := range columns(old, row.StepsTable) {
		have[c.Name] = c.Name != "backward_ns"
	}

	got := Missing(old, Options{}, row.StepsTable, have)
	if len(got) != 1 || got[0] != "ALTER TABLE `steps` ADD COLUMN `backward_ns` Int64" {
		t.Fatalf("Missing() = %q", got)
	}
}

func TestParseAddress(t *testing.T) {
	a, err := ParseAddress("clickhouse://u@h/db?secure=true&ca=/x")
	if err != nil || a.Host != "h:9440" || a.User != "u" || a.Database != "db" || !a.Secure || a.CAFile != "/x" {
		t.Fatalf("ParseAddress = %+v, %v", a, err)
	}

	if a, err = ParseAddress("clickhouse://[::1]:9100"); err != nil || a.Host != "[::1]:9100" || a.Database != "default" || a.User != "default" {
		t.Fatalf("ParseAddress = %+v, %v", a, err)
	}

	a, err = ParseAddress("clickhouse://u@h1,h2:9100,[::1]/db?secure=true")
	if err != nil || a.Host != "h1:9440" || !slices.Equal(a.Hosts, []string{"h1:9440", "h2:9100", "[::1]:9440"}) {
		t.Fatalf("ParseAddress = %+v, %v", a, err)
	}

	if got := a.String(); got != "clickhouse://u@h1:9440,h2:9100,[::1]:9440/db" {
		t.Errorf("String() = %s", got)
	}

	for spec, word := range map[string]string{
		"clickhouse://u:hunter2@h/db":       "process list",
		"clickhouse:///db":                  "no host",
		"clickhouse://h/db?sceure=1":        "sceure",
		"clickhouse://a:1,/db":              "no host",
		"clickhouse://a:1,u:hunter2@b/db":   "",
		"clickhouse://a,b c/db":             "",
		"clickhouse://u:hunter2@h:port/db":  "",
		"clickhouse://u@h/db?secure=maybe!": "secure",
	} {
		_, err := ParseAddress(spec)
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("ParseAddress(%q): %v; want a word on %q and no secret", spec, err, word)
		}
	}
}

func TestLiteral(t *testing.T) {
	if got := Literal("a'b\\c\x00\n"); got != `'a\'b\\c\0\n'` {
		t.Fatalf("Literal() = %s", got)
	}
}
