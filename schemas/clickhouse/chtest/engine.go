package chtest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// engineVersion is the npm package's that .ci/parts installs.
const engineVersion = "26.7.3-stable.1"

// Engine is a running current engine. It collects no asynchronous inserts (chdbd says why).
type Engine struct {
	Address string // host:port of its HTTP interface
	Native  string // host:port of the native protocol
}

// StartEngine builds and starts the engine's process; it ends with the test. It fails
// the test when the library is missing, and says how to get it.
func StartEngine(t testing.TB) *Engine {
	t.Helper()
	return startEngine(t, "")
}

// StartEngineWithUsers is StartEngine with the users of a users.xml, profiles and quotas included.
func StartEngineWithUsers(t testing.TB, users string) *Engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.xml")
	if err := os.WriteFile(path, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}

	return startEngine(t, path)
}

// startEngine runs chdbd and waits until it says its two ports. users is the path of a users.xml, "" for none.
func startEngine(t testing.TB, users string) *Engine {
	t.Helper()
	library := findLibrary(t)
	binary := filepath.Join(t.TempDir(), "chdbd")
	build := exec.Command("go", "build", "-o", binary, "github.com/laggard-dev/laggard/schemas/clickhouse/chtest/chdbd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build chdbd: %v\n%s", err, out)
	}

	command := exec.Command(binary, "-lib", library, "-dir", t.TempDir(), "-users", users)
	stdin, err := command.StdinPipe() // it ends with this process, whatever becomes of that
	if err != nil {
		t.Fatal(err)
	}

	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatalf("start chdbd: %v", err)
	}

	t.Cleanup(func() {
		command.Process.Kill()
		stdin.Close()
		command.Wait()
	})
	var ports [2]int
	if _, err := fmt.Fscan(stdout, &ports[0], &ports[1]); err != nil {
		t.Fatalf("start chdbd with %s: %v", library, err)
	}

	return &Engine{Address: fmt.Sprintf("127.0.0.1:%d", ports[0]), Native: fmt.Sprintf("127.0.0.1:%d", ports[1])}
}

// findLibrary returns the path of libchdb.
func findLibrary(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}

	folder := filepath.Join(cache, "laggard", "chdb-"+engineVersion)
	matches, _ := filepath.Glob(filepath.Join(folder, "node_modules", "@chdb", "lib-linux-*", "libchdb.so"))
	if len(matches) == 0 {
		t.Fatalf("libchdb.so is not installed under %s: run make parts", folder)
	}

	return matches[0]
}

// Query runs a statement and returns the reply in the format the statement names,
// else TabSeparated.
func (e *Engine) Query(statement string) (string, error) {
	reply, err := http.Post("http://"+e.Address+"/", "text/plain", strings.NewReader(statement))
	if err != nil {
		return "", fmt.Errorf("query chdb: %w", err)
	}

	return e.read(reply)
}

// Insert runs an INSERT … FORMAT statement with its data.
func (e *Engine) Insert(statement string, data io.Reader) error {
	reply, err := http.Post("http://"+e.Address+"/?query="+url.QueryEscape(statement), "application/octet-stream", data)
	if err != nil {
		return fmt.Errorf("insert into chdb: %w", err)
	}

	_, err = e.read(reply)
	return err
}

// read returns a reply's text; the text of an error is the engine's own.
func (e *Engine) read(reply *http.Response) (string, error) {
	defer reply.Body.Close()
	b, err := io.ReadAll(reply.Body)
	if err != nil {
		return "", fmt.Errorf("read chdb's reply: %w", err)
	}

	if reply.StatusCode != http.StatusOK {
		return "", fmt.Errorf("chdb: %s", strings.TrimSpace(string(b)))
	}

	return string(b), nil
}
