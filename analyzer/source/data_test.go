package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/schemas/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trace unpacks one of the shared traces and returns its folder.
func trace(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", name+".tar.gz")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Skipf("WITHOUT REAL TRACES: %s is not on this machine; it stands beside the repository", path)
	}

	dir := t.TempDir()
	if said, err := exec.Command("tar", "-xzmf", path, "-C", dir, "--no-same-owner").CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", path, err, said)
	}

	return filepath.Join(dir, name)
}

// write makes a file and the folders above it.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// load opens a source and reads a job of it.
func load(t testing.TB, spec, job string, o Options) (*row.Rows, Info, error) {
	t.Helper()
	s, err := Open(context.Background(), spec, o)
	if err != nil {
		return nil, Info{}, err
	}
	defer s.Close()
	r := &row.Rows{}
	info, err := s.Load(context.Background(), job, r.Add, o)
	return r, info, err
}

// stepLines are the lines of a rank that ran n steps of 10 ms, with its identity.
func stepLines(job string, rank, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"meta":{"format":"laggard/1","segment":"%016x","job":%q,"rank":%d,"incarnation":"%016x","world_size":2,"local_rank":%d,"node":"node-%d","pid":%d,"started_ns":1753000000000000000,"boot_id":"b","writer":"test/1"}}`+"\n",
		rank+1, job, rank, rank+100, rank, rank, rank+4000)
	for i := range n {
		start := int64(1753000000000000000) + int64(i)*10_000_000
		fmt.Fprintf(&b, `{"kind":"FP","step":%d,"start":%d,"dur":6000000,"ring":1,"seq":%d}`+"\n", i, start+1000, 2*i)
		fmt.Fprintf(&b, `{"kind":"Step","step":%d,"start":%d,"dur":9900000,"ring":1,"seq":%d}`+"\n", i, start, 2*i+1)
	}

	return b.String()
}
