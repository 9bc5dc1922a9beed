package main

import (
	"testing"

	"spillway/internal/fakeapiserver"
	"spillway/internal/testutil"
	"spillway/internal/upstream"
	"spillway/internal/upstream/upstreamtest"
)

// patience bounds waits that a working program ends soon.
const patience = testutil.Patience

var eventually, writeFile = testutil.Eventually, testutil.WriteFile

// clientOf is upstream's client, which the test closes.
func clientOf(t *testing.T, up *fakeapiserver.Server) *upstream.Client {
	t.Helper()
	return upstreamtest.NewClient(t, up.Config())
}
