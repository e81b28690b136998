package watch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/schemas/spelling"
)

// maxThresholds bounds the thresholds file.
const maxThresholds = 64 << 10

// readThresholds reads the file of threshold.Config's fields (JSON or YAML, the names of
// the JSON tags), if there is one. What it leaves out keeps its default. changed is true when its
// content is another one than at the last call and could be used; an error is returned once for
// each content. A ConfigMap's file is replaced by a link, so links are followed here: the operator
// names the file.
func (w *Watcher) readThresholds() (cfg threshold.Config, changed bool, err error) {
	path := w.o.Thresholds
	if path == "" {
		return cfg, false, nil
	}

	data, err := readBounded(path)
	is := data
	if err != nil {
		is = []byte(err.Error())
	}

	same := w.seen != nil && bytes.Equal(is, w.seen)
	w.seen = is
	switch {
	case same:
		return cfg, false, nil
	case err != nil:
		return cfg, false, err
	}

	cfg, err = parseThresholds(data)
	if err != nil {
		return cfg, false, fmt.Errorf("thresholds %s: %w", path, err)
	}

	// The flag counts before the file, whatever the file says.
	cfg.MinImpact = cmp.Or(w.o.MinImpact, cfg.MinImpact)
	return cfg, true, nil
}

// readBounded reads the file, unless somebody named one that is no file of thresholds.
func readBounded(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read thresholds: %w", err)
	}

	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, maxThresholds+1))
	if err == nil && len(data) > maxThresholds {
		err = fmt.Errorf("read thresholds %s: larger than %d bytes", path, maxThresholds)
	}

	return data, err
}

// parseThresholds reads thresholds on top of the defaults. Unknown keys are an
// error that names the nearest known one.
func parseThresholds(data []byte) (threshold.Config, error) {
	cfg := detect.Default()
	values := map[string]any{}
	if err := yaml.Unmarshal(data, &values); err != nil {
		return cfg, fmt.Errorf("parse: %w", err)
	}

	v := reflect.ValueOf(&cfg).Elem()
	fields := map[string]reflect.Value{}
	var known []string
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "" && v.Field(i).Kind() == reflect.Float64 {
			fields[name] = v.Field(i)
			known = append(known, name)
		}
	}

	for _, k := range slices.Sorted(maps.Keys(values)) {
		field, ok := fields[k]
		if !ok {
			return detect.Default(), unknownKey(k, known)
		}

		var x float64
		switch n := values[k].(type) {
		case int:
			x = float64(n)
		case float64:
			x = n
		default:
			return detect.Default(), fmt.Errorf("%s: %v is no number", k, values[k])
		}

		// NaN is refused with the rest: it compares as false.
		if !(x > 0) || x > 1e6 {
			return detect.Default(), fmt.Errorf("%s: %v is not a positive number", k, values[k])
		}

		field.SetFloat(x)
	}

	return cfg, nil
}

// unknownKey names the key that was meant. A misspelt threshold that is silently left out would pass for
// one that has no effect.
func unknownKey(key string, known []string) error {
	meant := ""
	if near := spelling.Nearest(key, known); near != "" {
		meant = fmt.Sprintf("; did you mean %s?", near)
	}

	return fmt.Errorf("unknown key %q%s; known: %s", key, meant, strings.Join(known, ", "))
}
