package probes

import (
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var deadline, eventually = testutil.Deadline, testutil.Eventually

var (
	configMaps = object.NewResource(fakeapiserver.ConfigMaps, "ConfigMap", true, true)
	widgets    = object.NewResource(fakeapiserver.Widgets, "Widget", true, false)
	nodes      = object.NewResource(fakeapiserver.Nodes, "Node", false, true)
)
