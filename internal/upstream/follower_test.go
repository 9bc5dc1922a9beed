package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A watch that is cut each 20 s and opened again has no line; an outage has one at its beginning
// and one at its end.
func TestFollowerSaysWhatLastsAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		f := &follower{log: zap.New(core), denied: func(error) { t.Error("denied") }, status: func() Status {
			return Status{}
		}}
		o := f.observer()
		for range 100 {
			o.Failed(errors.New("cut"))
			time.Sleep(failureLogDelay / 2)
			o.Opened()
			time.Sleep(20 * time.Second)
		}
		if logs.Len() != 0 {
			t.Errorf("blips have lines: %v", logs.All())
		}
		for range 100 {
			o.Failed(errors.New("refused"))
			time.Sleep(failureLogDelay)
		}
		o.Completed()
		o.Opened()
		if n := logs.Len(); n != 2 || logs.All()[0].Message != "upstream failed" ||
			logs.All()[1].Message != "upstream is of use again" {
			t.Errorf("an outage has %d lines: %v", n, logs.All())
		}
	})
}
