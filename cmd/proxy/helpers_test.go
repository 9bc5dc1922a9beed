package main

import (
	"testing"

	"go.uber.org/zap"

	"spillway/internal/fakeapiserver"
	"spillway/internal/testutil"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// patience bounds waits that a working program ends soon.
const patience = testutil.Patience

var eventually, writeFile = testutil.Eventually, testutil.WriteFile

// clientOf is upstream's client, which the test closes.
func clientOf(t *testing.T, up *fakeapiserver.Server) *upstream.Client {
	t.Helper()
	transports, err := transport.New(transport.ConfigSource{Config: up.Config()}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
