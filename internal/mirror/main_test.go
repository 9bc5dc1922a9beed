package mirror

import (
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"spillway/internal/fakeapiserver"
	"spillway/internal/testutil"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
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
	transports, err := transport.New(transport.ConfigSource{Config: config}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
