package grafana

// Plugin is the data source that the queries are written for.
const Plugin = "grafana-clickhouse-datasource"

// Dashboard is Grafana's dashboard JSON, as much of it as we use.
type Dashboard struct {
	UID           string      `json:"uid"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	Tags          []string    `json:"tags"`
	Timezone      string      `json:"timezone"`
	Editable      bool        `json:"editable"`
	GraphTooltip  int         `json:"graphTooltip"` // 1: the cross-hair is shared
	SchemaVersion int         `json:"schemaVersion"`
	Refresh       string      `json:"refresh"`
	Time          Range       `json:"time"`
	Links         []Link      `json:"links"`
	Templating    Variables   `json:"templating"`
	Annotations   Annotations `json:"annotations"`
	Panels        []Panel     `json:"panels"`
}

// Range is a relative time range.
type Range struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Link leads to another dashboard, from the top of a page or from a cell.
type Link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	URL         string   `json:"url,omitempty"`
	AsDropdown  bool     `json:"asDropdown,omitempty"`
	IncludeVars bool     `json:"includeVars,omitempty"`
	KeepTime    bool     `json:"keepTime,omitempty"`
	TargetBlank bool     `json:"targetBlank,omitempty"`
}

// Variables is the list of a dashboard's variables.
type Variables struct {
	List []Variable `json:"list"`
}

// Variable is one variable. Query is a Target for query variables and a string
// for the others.
type Variable struct {
	Name        string   `json:"name"`
	Label       string   `json:"label"`
	Description string   `json:"description,omitempty"`
	Type        string   `json:"type"`
	Datasource  *Source  `json:"datasource,omitempty"`
	Query       any      `json:"query"`
	Definition  string   `json:"definition,omitempty"`
	Refresh     int      `json:"refresh,omitempty"` // 2: whenever the time range changes
	Sort        int      `json:"sort"`
	Multi       bool     `json:"multi"`
	IncludeAll  bool     `json:"includeAll"`
	Current     *Option  `json:"current,omitempty"`
	Options     []Option `json:"options,omitempty"`
}

// Option is one choice of a variable.
type Option struct {
	Text     any  `json:"text"`
	Value    any  `json:"value"`
	Selected bool `json:"selected"`
}

// Annotations is the list of a dashboard's annotations.
type Annotations struct {
	List []Annotation `json:"list"`
}

// Annotation marks moments in every panel with a time axis.
type Annotation struct {
	Name       string `json:"name"`
	Enable     bool   `json:"enable"`
	IconColor  string `json:"iconColor"`
	Datasource Source `json:"datasource"`
	Target     Target `json:"target"`
}

// Source names a data source.
type Source struct {
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
	Datasource   Source `json:"datasource"`
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
	Datasource    *Source        `json:"datasource,omitempty"`
	GridPos       Grid           `json:"gridPos"`
	Targets       []Target       `json:"targets,omitempty"`
	FieldConfig   *FieldConfig   `json:"fieldConfig,omitempty"`
	Options       map[string]any `json:"options,omitempty"`
	Links         []Link         `json:"links,omitempty"`
	MaxDataPoints int            `json:"maxDataPoints,omitempty"`
	Collapsed     *bool          `json:"collapsed,omitempty"`
}

// Grid is a panel's place: 24 columns, a row is 30 pixels.
type Grid struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// FieldConfig is how values are shown.
type FieldConfig struct {
	Defaults  Field      `json:"defaults"`
	Overrides []Override `json:"overrides"`
}

// Field is how one field is shown.
type Field struct {
	Unit        string         `json:"unit,omitempty"`
	Decimals    *int           `json:"decimals,omitempty"`
	Min         *float64       `json:"min,omitempty"`
	Max         *float64       `json:"max,omitempty"`
	NoValue     string         `json:"noValue,omitempty"`
	DisplayName string         `json:"displayName,omitempty"`
	Color       map[string]any `json:"color,omitempty"`
	Thresholds  *Thresholds    `json:"thresholds,omitempty"`
	Mappings    []Mapping      `json:"mappings,omitempty"`
	Custom      map[string]any `json:"custom,omitempty"`
	Links       []Link         `json:"links,omitempty"`
}

// Thresholds colour values.
type Thresholds struct {
	Mode  string      `json:"mode"`
	Steps []Threshold `json:"steps"`
}

// Threshold is the colour from a value on; nil is minus infinity.
type Threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// Mapping gives values words and colours.
type Mapping struct {
	Type    string         `json:"type"`
	Options map[string]any `json:"options"`
}

// Override changes how one field is shown.
type Override struct {
	Matcher    Matcher    `json:"matcher"`
	Properties []Property `json:"properties"`
}

// Matcher picks fields by name.
type Matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

// Property is one changed setting.
type Property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}
