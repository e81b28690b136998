package endpointtest

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// Raw is a gRPC codec that leaves messages as they are: each is a *[]byte. It is for tests
// that hold a protocol to bytes that are written down: nothing generated lies between.
type Raw struct{}

// Marshal implements encoding.Codec.
func (Raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// Unmarshal implements encoding.Codec.
func (Raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

// Name implements encoding.Codec.
func (Raw) Name() string { return "proto" }

// ReadMessages reads a file of messages: a line each, its name and its bytes in hex; a line that
// begins with # says where they are from.
func ReadMessages(t testing.TB, path string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	all := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || name == "#" {
			continue
		}

		if all[name], err = hex.DecodeString(digits); err != nil {
			t.Fatalf("%s: %s: %v", path, name, err)
		}
	}

	return all
}
