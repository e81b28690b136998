package threshold

import (
	"reflect"
	"testing"
)

// TestDefault holds that no threshold is forgotten, and that what is listed is less than
// what alarms.
func TestDefault(t *testing.T) {
	c := Default()
	for v, i := reflect.ValueOf(c), 0; i < v.NumField(); i++ {
		if v.Field(i).Float() <= 0 {
			t.Errorf("%s is %v, want more than 0", v.Type().Field(i).Name, v.Field(i))
		}
	}

	if c.MinEffect >= c.Effect || c.LongAlarm >= c.Alarm {
		t.Errorf("thresholds %+v: the least effect lies below the design effect, the long alarm below the short one", c)
	}
}
