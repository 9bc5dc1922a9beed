package serve

import (
	"testing"

	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { testutil.VerifyServers(m) }

// patience bounds waits that a working program ends soon.
const patience = testutil.Patience

var eventually, deadline = testutil.Eventually, testutil.Deadline
