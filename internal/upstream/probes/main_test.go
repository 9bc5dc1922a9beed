package probes

import (
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/fakeapiserver"
	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var deadline, eventually = testutil.Deadline, testutil.Eventually

var (
	configMaps = fakeapiserver.ObjectResource(fakeapiserver.ConfigMaps)
	widgets    = fakeapiserver.ObjectResource(fakeapiserver.Widgets)
	nodes      = fakeapiserver.ObjectResource(fakeapiserver.Nodes)
)
