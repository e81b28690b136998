package grafana_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// view is what a page shows: its time range, and the variables by name. All is
// the single value "$__all".
type view struct {
	from, to  time.Time
	points    int // pixels of a panel
	variables map[string][]string
}

const all = "$__all"

// expand does to a query what the browser's part of the plugin and its backend
// do: first $__conditionalAll, then variables, then the macros.
func (s view) expand(sql string, points int) (string, error) {
	sql, err := s.conditions(sql)
	if err != nil {
		return "", err
	}

	if sql, err = s.fill(sql); err != nil {
		return "", err
	}

	return s.macros(sql, points)
}

// arguments returns the arguments of the macro whose bracket opens at i, split
// at commas outside inner brackets, and where it ends.
func arguments(sql string, i int) (args []string, end int, err error) {
	depth, start := 0, i+1
	for ; i < len(sql); i++ {
		switch sql[i] {
		case '(':
			depth++
		case ',':
			if depth == 1 {
				args, start = append(args, sql[start:i]), i+1
			}
		case ')':
			if depth--; depth == 0 {
				return append(args, sql[start:i]), i + 1, nil
			}
		}
	}

	return nil, 0, fmt.Errorf("expand: bracket never closes in %q", sql)
}

var variableName = regexp.MustCompile(`\$(\w+)`)

func (s view) conditions(sql string) (string, error) {
	const macro = "$__conditionalAll"
	for {
		i := strings.LastIndex(sql, macro+"(")
		if i < 0 {
			return sql, nil
		}

		args, end, err := arguments(sql, i+len(macro))
		if err != nil {
			return "", err
		}

		if len(args) != 2 {
			return "", fmt.Errorf("expand: %s has %d arguments, the plugin takes 2", macro, len(args))
		}

		m := variableName.FindStringSubmatch(args[1])
		if m == nil {
			return "", fmt.Errorf("expand: %q names no variable", args[1])
		}

		value, ok := s.variables[m[1]]
		if !ok {
			return "", fmt.Errorf("expand: unknown variable %s", m[1])
		}

		phrase := args[0]
		if strings.Join(value, ",") == all || len(value) == 0 {
			phrase = "1=1"
		}

		sql = sql[:i] + phrase + sql[end:]
	}
}

var variableUse = regexp.MustCompile(`\$\{(\w+):(\w+)\}`)

func (s view) fill(sql string) (string, error) {
	var err error
	sql = variableUse.ReplaceAllStringFunc(sql, func(use string) string {
		m := variableUse.FindStringSubmatch(use)
		value, ok := s.variables[m[1]]
		if !ok {
			err = fmt.Errorf("expand: unknown variable %s", m[1])
		}

		if m[2] == "raw" {
			return strings.Join(value, ",")
		}

		if m[2] != "sqlstring" {
			err = fmt.Errorf("expand: format %s of variable %s", m[2], m[1])
		}

		var quoted []string
		for _, v := range value {
			quoted = append(quoted, "'"+strings.ReplaceAll(v, "'", "''")+"'")
		}

		return strings.Join(quoted, ",")
	})
	return sql, err
}

var macroUse = regexp.MustCompile(`\$__(\w+)(\(?)`)

func (s view) macros(sql string, points int) (string, error) {
	if points == 0 {
		points = s.points
	}

	interval := max(1, int(s.to.Sub(s.from).Seconds())/points)
	for {
		at := macroUse.FindStringSubmatchIndex(sql)
		if at == nil {
			return sql, nil
		}

		name, end, column := sql[at[2]:at[3]], at[3], ""
		if at[4] != at[5] && (name == "timeFilter" || name == "timeFilter_ms" || name == "timeInterval") {
			args, after, err := arguments(sql, at[4])
			if err != nil || len(args) != 1 {
				return "", fmt.Errorf("expand: $__%s takes one column: %v", name, err)
			}

			column, end = args[0], after
		}

		var out string
		switch name {
		case "fromTime":
			out = fmt.Sprintf("toDateTime(%d)", s.from.Unix())
		case "toTime":
			out = fmt.Sprintf("toDateTime(%d)", s.to.Unix())
		case "timeFilter":
			out = fmt.Sprintf("%s >= toDateTime(%d) AND %s <= toDateTime(%d)", column, s.from.Unix(), column, s.to.Unix())
		case "timeFilter_ms":
			out = fmt.Sprintf("%s >= fromUnixTimestamp64Milli(%d) AND %s <= fromUnixTimestamp64Milli(%d)", column, s.from.UnixMilli(), column, s.to.UnixMilli())
		case "timeInterval":
			out = fmt.Sprintf("toStartOfInterval(toDateTime(%s), INTERVAL %d second)", column, interval)
		case "interval_s":
			out = fmt.Sprint(interval)
		default:
			return "", fmt.Errorf("expand: unknown macro $__%s", name)
		}

		sql = sql[:at[0]] + out + sql[end:]
	}
}

func TestExpand(t *testing.T) {
	s := view{from: time.Unix(1000, 0), to: time.Unix(2000, 0), points: 100, variables: map[string][]string{"job": {"a'b"}, "node": {all}, "m": {"self_ns"}}}
	for _, c := range []struct{ in, want string }{
		{"$__timeFilter(ts)", "ts >= toDateTime(1000) AND ts <= toDateTime(2000)"},
		{"$__timeInterval(ts) / $__interval_s", "toStartOfInterval(toDateTime(ts), INTERVAL 10 second) / 10"},
		{"job = ${job:sqlstring}", "job = 'a''b'"},
		{"avg(${m:raw})", "avg(self_ns)"},
		{"$__conditionalAll(node IN (f(1, 2)), $node) AND 1", "1=1 AND 1"},
		{"$__conditionalAll(job IN (${job:sqlstring}), $job)", "job IN ('a''b')"},
		{"dateDiff('second', x, $__toTime)", "dateDiff('second', x, toDateTime(2000))"},
	} {
		got, err := s.expand(c.in, 0)
		if err != nil || got != c.want {
			t.Errorf("expand(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}

	for _, bad := range []string{"$__conditionalAll(a, b, $job)", "${nobody:sqlstring}", "${job:csv}", "$__timeFiler(ts)"} {
		if got, err := s.expand(bad, 0); err == nil {
			t.Errorf("expand(%q) = %q, want an error", bad, got)
		}
	}
}
