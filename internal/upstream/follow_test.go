package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An API server that has just begun forbids what it allows: only what it goes on to forbid counts,
// and all that was never allowed.
func TestDenials(t *testing.T) {
	gr := schema.GroupResource{Resource: "pods"}
	forbidden := apierrors.NewForbidden(gr, "", errors.New("no"))
	synctest.Test(t, func(t *testing.T) {
		var d Denials
		f := func(err error, s Status, want bool) {
			t.Helper()
			if got := d.IsFinal(err, s); got != want {
				t.Errorf("%v with %+v: %v", err, s, got)
			}
		}
		f(forbidden, Status{}, true)
		f(apierrors.NewNotFound(gr, ""), Status{HasSynced: true}, true)
		f(errors.New("refused"), Status{}, false)
		synced := Status{HasSynced: true, Contact: time.Now()}
		f(forbidden, synced, false)
		time.Sleep(forbiddenGracePeriod - time.Nanosecond)
		f(forbidden, synced, false)
		f(errors.New("refused"), synced, false)
		f(forbidden, synced, false)
		time.Sleep(forbiddenGracePeriod)
		synced.Contact = time.Now()
		time.Sleep(time.Nanosecond)
		f(forbidden, synced, false)
		time.Sleep(forbiddenGracePeriod)
		f(forbidden, synced, true)
	})
}

// A watch that is cut each 20 s and opened again has no line; an outage has one at its beginning
// and one at its end.
func TestFollowerSaysWhatLastsAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		f := &follower{log: zap.New(core), onDenied: func(error) { t.Error("denied") }, status: func() Status {
			return Status{}
		}}
		o := f.observer()
		for range 100 {
			o.OnFailure(errors.New("cut"))
			time.Sleep(failureLogDelay / 2)
			o.OnOpen()
			time.Sleep(20 * time.Second)
		}
		if logs.Len() != 0 {
			t.Errorf("blips have lines: %v", logs.All())
		}
		for range 100 {
			o.OnFailure(errors.New("refused"))
			time.Sleep(failureLogDelay)
		}
		o.OnState()
		o.OnOpen()
		if n := logs.Len(); n != 2 || logs.All()[0].Message != "upstream failed" ||
			logs.All()[1].Message != "upstream is of use again" {
			t.Errorf("an outage has %d lines: %v", n, logs.All())
		}
	})
}
