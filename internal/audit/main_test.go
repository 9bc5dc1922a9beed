package audit

import (
	"testing"

	"go.uber.org/goleak"
)

// What rotates a file leaves a goroutine behind when the file is closed, and has no means to end
// it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}
