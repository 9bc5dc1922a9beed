package mirror

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// One goroutine per process, which keeps the Date header up to date and never ends.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// A stopped server's cleaner of idle workers notices that within ten seconds.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// patience bounds waits that a working program ends soon.
const patience = time.Minute

// eventually waits for what a working program does soon.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// clientOf is upstream's client, which the test closes.
func clientOf(t *testing.T, up *fakeapiserver.Server) *upstream.Client {
	t.Helper()
	return clientAt(t, up, up.URL)
}

// clientAt is clientOf through what is at another address.
func clientAt(t *testing.T, up *fakeapiserver.Server, address string) *upstream.Client {
	t.Helper()
	config := up.Config()
	config.Host = address
	transports, err := transport.New(transport.Source{Config: config}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
