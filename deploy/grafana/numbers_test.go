package grafana

import "testing"

func numbers(t *testing.T, s *store, r map[string]reply)  {}
func pictures(t *testing.T, s *store, r map[string]reply) {}
