package main

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

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
	transports, err := transport.New(transport.Source{Config: up.Config()}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
