package main

// plugin is the data source that the queries are written for.
const plugin = "grafana-clickhouse-datasource"

// Dashboard is Grafana's dashboard JSON, as much of it as we use: "JSON model" in its
// manual. The order of the fields here is their order in the files.
type Dashboard struct {
	UID           string            `json:"uid"`
	Title         string            `json:"title"`
	Description   string            `json:"description"`
	Tags          []string          `json:"tags"`
	Timezone      string            `json:"timezone"`
	Editable      bool              `json:"editable"`
	GraphTooltip  int               `json:"graphTooltip"` // 1: the cross-hair is shared
	SchemaVersion int               `json:"schemaVersion"`
	Refresh       string            `json:"refresh"`
	Time          map[string]string `json:"time"` // from, to
	Links         []link            `json:"links"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []annotation `json:"list"` // marks in every panel with a time axis
	} `json:"annotations"`
	Panels []Panel `json:"panels"`
}

// link leads to another dashboard, from the top of a page (Type and Tags) or from a cell
// (URL).
type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	URL         string   `json:"url,omitempty"`
	AsDropdown  bool     `json:"asDropdown,omitempty"`
	IncludeVars bool     `json:"includeVars,omitempty"`
	KeepTime    bool     `json:"keepTime,omitempty"`
}

// variable is one variable. Query is a Target for query variables and a string
// for the others.
type variable struct {
	Name        string   `json:"name"`
	Label       string   `json:"label"`
	Description string   `json:"description,omitempty"`
	Type        string   `json:"type"`
	Datasource  *source  `json:"datasource,omitempty"`
	Query       any      `json:"query"`
	Definition  string   `json:"definition,omitempty"`
	Refresh     int      `json:"refresh,omitempty"` // 2: whenever the time range changes
	Sort        int      `json:"sort"`
	Multi       bool     `json:"multi"`
	IncludeAll  bool     `json:"includeAll"`
	Current     *option  `json:"current,omitempty"`
	Options     []option `json:"options,omitempty"`
}

// option is one choice of a variable. Text and Value are lists where several may be chosen.
type option struct {
	Text     any  `json:"text"`
	Value    any  `json:"value"`
	Selected bool `json:"selected"`
}

// annotation marks moments in every panel with a time axis.
type annotation struct {
	Name       string `json:"name"`
	Enable     bool   `json:"enable"`
	IconColor  string `json:"iconColor"`
	Datasource source `json:"datasource"`
	Target     Target `json:"target"`
}

// source names a data source.
type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Formats of a query's reply, by the plugin's numbers.
const (
	formatSeries = 0
	formatTable  = 1
)

// Target is one query: SQL for ClickHouse, or Expr for Prometheus.
type Target struct {
	RefID        string `json:"refId"`
	Datasource   source `json:"datasource"`
	EditorType   string `json:"editorType,omitempty"`
	QueryType    string `json:"queryType,omitempty"`
	Format       any    `json:"format,omitempty"`
	RawSQL       string `json:"rawSql,omitempty"`
	Expr         string `json:"expr,omitempty"`
	LegendFormat string `json:"legendFormat,omitempty"`

	// Columns is what the reply must hold, in order: "name kind, …" with the kinds
	// time, text and number. The test checks it.
	Columns string `json:"-"`
}

// Panel is one panel.
type Panel struct {
	ID            int            `json:"id"`
	Type          string         `json:"type"`
	Title         string         `json:"title"`
	Description   string         `json:"description,omitempty"`
	Datasource    *source        `json:"datasource,omitempty"`
	GridPos       grid           `json:"gridPos"`
	Targets       []Target       `json:"targets,omitempty"`
	FieldConfig   *fieldConfig   `json:"fieldConfig,omitempty"`
	Options       map[string]any `json:"options,omitempty"`
	MaxDataPoints int            `json:"maxDataPoints,omitempty"`
	Collapsed     *bool          `json:"collapsed,omitempty"`
}

// grid is a panel's place: 24 columns, a row is 30 pixels.
type grid struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// fieldConfig is how values are shown.
type fieldConfig struct {
	Defaults  field      `json:"defaults"`
	Overrides []override `json:"overrides"`
}

// field is how one field is shown.
type field struct {
	Unit        string         `json:"unit,omitempty"`
	Min         *float64       `json:"min,omitempty"`
	NoValue     string         `json:"noValue,omitempty"`
	DisplayName string         `json:"displayName,omitempty"`
	Color       map[string]any `json:"color,omitempty"`
	Thresholds  map[string]any `json:"thresholds,omitempty"`
	Mappings    []mapping      `json:"mappings,omitempty"`
	Custom      map[string]any `json:"custom,omitempty"`
}

// mapping gives values words and colours.
type mapping struct {
	Type    string         `json:"type"`
	Options map[string]any `json:"options"`
}

// override changes how one field is shown: what its Properties name, in the words of field
// with a dot between the levels, stands instead of the default.
type override struct {
	Matcher struct {
		ID      string `json:"id"`
		Options string `json:"options"` // a field's name
	} `json:"matcher"`
	Properties []property `json:"properties"`
}

// property is one changed setting.
type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}
