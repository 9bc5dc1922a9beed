// Package testutil holds what the tests of several packages need, and no package of the proxy owns:
// waits on a real clock, files, addresses without a server, the size of the heap.
package testutil

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience is how long a test waits for what a working program does soon. It is far more than that,
// because machines are slow at times.
const Patience = time.Minute

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for until := time.Now().Add(Patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited %v for %s", Patience, what)
		}
	}
}

// Deadline is a context that ends with the test, or after Patience.
func Deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// WriteFile writes a file into a folder of its own and returns its path.
func WriteFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// HeapBytes is the memory in use, after a garbage collection.
func HeapBytes() uint64 {
	runtime.GC()
	runtime.GC() // frees what finalizers kept in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// VerifyServers is goleak.VerifyTestMain for tests that run servers of fasthttp.
func VerifyServers(m *testing.M) {
	goleak.VerifyTestMain(m,
		// One goroutine per process, which keeps the Date header up to date and never ends.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// A stopped server's cleaner of idle workers notices that within ten seconds.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}
