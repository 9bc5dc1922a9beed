package reauth_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"spillway/internal/auth/reauth/reauthtest"
)

// A reauthorizer that does not get on with its work shows it, and one without work rests.
func TestProgressOfAStuckReauthorizer(t *testing.T) {
	reauthtest.On(t, func(*reauthtest.Setup) {}, func(p *reauthtest.Model) {
		synctest.Wait()
		before, working := p.Progress()
		if working {
			t.Error("it works on nothing")
		}
		release := p.Hold()
		stuck := func() (turns uint64) {
			for turns, working := p.Progress(); ; turns, working = p.Progress() {
				if working {
					return turns
				}
				runtime.Gosched()
			}
		}
		turns := stuck()
		if again := stuck(); turns == before || again != turns {
			t.Errorf("%d turns before, %d while it works, then %d", before, turns, again)
		}
		release()
		synctest.Wait()
		if _, working := p.Progress(); working {
			t.Error("it still works")
		}
	})
}
