// Package upstreamtest makes clients of upstream for tests.
package upstreamtest

import (
	"testing"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// NewServer makes an API server, and a client of it.
func NewServer(t testing.TB, o fakeapiserver.Options) (*fakeapiserver.Server, *upstream.Client) {
	t.Helper()
	s := fakeapiserver.New(o)
	t.Cleanup(s.Close)
	return s, NewClient(t, s.Config())
}

// NewClient makes a client, which is closed at the end of the test at the latest.
func NewClient(t testing.TB, config *rest.Config) *upstream.Client {
	t.Helper()
	transports, err := transport.New(transport.ConfigSource{Config: config}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
