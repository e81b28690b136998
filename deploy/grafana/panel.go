package main

import "fmt"

var (
	clickhouseSource = source{Type: plugin, UID: "${datasource}"}
	prometheusSource = source{Type: "prometheus", UID: "${prometheus}"}
)

// table is a query whose reply is shown as it is.
func table(sql, columns string) Target {
	return Target{RefID: "A", Datasource: clickhouseSource, EditorType: "sql", QueryType: "table", Format: formatTable, RawSQL: sql, Columns: columns}
}

// series is a query of time, perhaps a text column that becomes a label, and
// numbers, in the order of time.
func series(sql, columns string) Target {
	t := table(sql, columns)
	t.QueryType, t.Format = "timeseries", formatSeries
	return t
}

// promql is a query of Prometheus.
func promql(ref, expr, legend string) Target {
	return Target{RefID: ref, Datasource: prometheusSource, Expr: expr, LegendFormat: legend}
}

// panel is what all kinds share. w and h are in cells of the grid. All its queries ask one
// data source.
func panel(kind, title, description string, w, h int, t ...Target) Panel {
	source := t[0].Datasource
	return Panel{
		Type: kind, Title: title, Description: description, Datasource: &source, GridPos: grid{W: w, H: h}, Targets: t,
		FieldConfig: &fieldConfig{Overrides: []override{}}, Options: map[string]any{},
	}
}

// statPanel shows one value of a table's first row. limits are where it turns
// orange and red.
func statPanel(title, description, unit string, w int, t Target, limits ...float64) Panel {
	p := panel("stat", title, description, w, 3, t)
	p.FieldConfig.Defaults = field{Unit: unit, NoValue: "no data", Thresholds: thresholds(limits...), Color: map[string]any{"mode": "thresholds"}}
	p.Options = map[string]any{
		"colorMode": "value", "graphMode": "none", "textMode": "value", "justifyMode": "center",
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "/.*/", "values": true, "limit": 1},
	}
	return p
}

// linePanel shows series over time.
func linePanel(title, description, unit string, w, h int, t ...Target) Panel {
	p := panel("timeseries", title, description, w, h, t...)
	p.FieldConfig.Defaults = field{
		Unit: unit, Color: map[string]any{"mode": "palette-classic"},
		Custom: map[string]any{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 0, "showPoints": "auto", "pointSize": 4, "spanNulls": false},
	}
	p.Options = map[string]any{
		"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	return p
}

// partsPanel shows what the steps of a condition are made of, stacked. with has the
// subqueries that the condition names.
func partsPanel(title, description, where, with string) Panel {
	return linePanel(title, description, "s", 12, 8, series(with+
		`SELECT $__timeInterval(ts) AS time,
  sumIf(fp_ns, fp_ns > 0) / count() / 1e9 AS forward,
  greatest(0, sumIf(self_ns, self_ns > 0) - sumIf(fp_ns, fp_ns > 0 AND self_ns > 0)) / count() / 1e9 AS "other own work",
  sumIf(exposed_ns, exposed_ns > 0) / count() / 1e9 AS waiting,
  sumIf(dataloader_ns, dataloader_ns > 0) / count() / 1e9 AS "data loading",
  sumIf(checkpoint_ns, checkpoint_ns > 0) / count() / 1e9 AS checkpoint
FROM steps WHERE `+where+`
GROUP BY time ORDER BY time`, "time time, forward number, other own work number, waiting number, data loading number, checkpoint number")).stacked()
}

// stacked turns lines into areas that add up.
func (p Panel) stacked() Panel {
	c := p.FieldConfig.Defaults.Custom
	c["fillOpacity"], c["stacking"] = 70, map[string]any{"mode": "normal", "group": "A"}
	return p
}

// bars turns lines into bars that add up.
func (p Panel) bars() Panel {
	p = p.stacked()
	p.FieldConfig.Defaults.Custom["drawStyle"] = "bars"
	return p
}

// namedPanel shows a line for each text in the query's column series, called by it alone.
func namedPanel(title, description, unit string, w, h int, sql string) Panel {
	p := linePanel(title, description, unit, w, h, series(sql, "time time, series text, value number"))
	p.FieldConfig.Defaults.DisplayName = "${__field.labels.series}"
	return p
}

// tablePanel shows rows.
func tablePanel(title, description string, w, h int, t Target) Panel {
	p := panel("table", title, description, w, h, t)
	p.FieldConfig.Defaults = field{Custom: map[string]any{"align": "auto", "filterable": true}}
	p.Options = map[string]any{"showHeader": true, "cellHeight": "sm"}
	return p
}

// heatPanel shows one row of cells for each series, coloured from lo to hi.
func heatPanel(title, description, unit string, w, h int, lo, hi float64, t Target) Panel {
	p := panel("heatmap", title, description, w, h, t)
	p.MaxDataPoints = 120
	p.FieldConfig.Defaults.DisplayName = "${__field.labels.series}"
	p.Options = map[string]any{
		"calculate":    false,
		"cellGap":      0,
		"cellValues":   map[string]any{"unit": unit, "decimals": 3},
		"color":        map[string]any{"mode": "scheme", "scheme": "RdYlGn", "reverse": true, "steps": 64, "min": lo, "max": hi, "fill": "dark-orange"},
		"filterValues": map[string]any{"le": -1},
		"legend":       map[string]any{"show": true},
		"rowsFrame":    map[string]any{"layout": "unknown"},
		"tooltip":      map[string]any{"mode": "single", "yHistogram": false, "showColorScale": true},
		"yAxis":        map[string]any{"axisPlacement": "left", "reverse": true},
	}
	return p
}

// with sets the unit of one column, and what else is given.
func (p Panel) with(column, unit string, more ...property) Panel {
	var o override
	o.Matcher.ID, o.Matcher.Options = "byName", column
	if unit != "" {
		o.Properties = append(o.Properties, property{"unit", unit})
	}

	o.Properties = append(o.Properties, more...)
	p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, o)
	return p
}

// linked makes a column's cells links. Grafana fills in the cell's own value
// (${__value.raw}) and its row's (${__data.fields.job}).
func linked(title, url string) property {
	return property{"links", []link{{Title: title, URL: url}}}
}

// coloured gives a column's values colours by limits.
func coloured(limits ...float64) property {
	return property{"thresholds", thresholds(limits...)}
}

// cell makes coloured apply to the cell's background.
var cell = property{"custom.cellOptions", map[string]any{"type": "color-background", "mode": "gradient"}}

// words colours the states of a verdict.
var words = property{"mappings", values(
	[3]string{"degraded", "degraded", "red"},
	[3]string{"intermittent", "intermittent", "orange"},
	[3]string{"suspect", "suspect", "yellow"},
	[3]string{"recovered", "recovered", "green"},
	[3]string{"healthy", "healthy", "green"},
)}

// values gives values a text and a colour each, in the order of the legend.
func values(shown ...[3]string) []mapping {
	options := map[string]any{}
	for i, v := range shown {
		options[v[0]] = map[string]any{"text": v[1], "color": v[2], "index": i}
	}

	return []mapping{{Type: "value", Options: options}}
}

// thresholds is green, then orange and red from the limits on; with one limit red.
// The colour of the least values has no limit: null is minus infinity.
func thresholds(limits ...float64) map[string]any {
	least := "green"
	if len(limits) == 0 {
		least = "text"
	}

	steps := []map[string]any{{"color": least, "value": nil}}
	colors := []string{"orange", "red"}[max(0, 2-len(limits)):]
	for i, limit := range limits {
		steps = append(steps, map[string]any{"color": colors[min(i, 1)], "value": limit})
	}

	return map[string]any{"mode": "absolute", "steps": steps}
}

// heading is a full-width row title.
func heading(title string) Panel {
	open := false
	return Panel{Type: "row", Title: title, GridPos: grid{W: 24, H: 1}, Collapsed: &open}
}

// place numbers the panels and sets them from left to right, line by line.
func place(panels ...Panel) []Panel {
	x, y, tall := 0, 0, 0
	for i := range panels {
		g := &panels[i].GridPos
		if x+g.W > 24 {
			x, y, tall = 0, y+tall, 0
		}

		g.X, g.Y = x, y
		x, tall = x+g.W, max(tall, g.H)
		panels[i].ID = i + 1
	}

	return panels
}

// dashboard fills in what all dashboards share.
func dashboard(uid, title, description string, vars []variable, panels []Panel) Dashboard {
	d := Dashboard{
		UID: "laggard-" + uid, Title: "laggard / " + title, Description: description, Tags: []string{"laggard"},
		Timezone: "browser", Editable: true, GraphTooltip: 1, SchemaVersion: 39, Refresh: "1m", Time: map[string]string{"from": "now-6h", "to": "now"},
		Links: []link{{
			Title: "laggard", Type: "dashboards", Tags: []string{"laggard"}, IncludeVars: true, KeepTime: true,
		}},
		Panels: panels,
	}
	d.Templating.List = append([]variable{sourceVariable("datasource", "ClickHouse", plugin)}, vars...)
	return d
}

// to is a link that keeps the time range.
func to(uid string, vars ...string) string {
	url := fmt.Sprintf("/d/laggard-%s?${__url_time_range}", uid)
	for i := 0; i+1 < len(vars); i += 2 {
		url += "&var-" + vars[i] + "=" + vars[i+1]
	}

	return url
}
