package mirror

import (
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/fakeapiserver"
	"spillway/internal/testutil"
	"spillway/internal/upstream"
	"spillway/internal/upstream/upstreamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that a working program ends soon.
const patience = testutil.Patience

var eventually = testutil.Eventually

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
	return upstreamtest.NewClient(t, config)
}
