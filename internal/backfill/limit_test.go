package backfill

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"spillway/internal/fanout"
)

// turnRequest is a call of acquire in a goroutine of a bubble.
type turnRequest struct {
	cancel context.CancelCauseFunc
	result chan error
}

func requestTurn(t *testing.T, l *WatchLimit, owner fanout.Owner) turnRequest {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := turnRequest{cancel: cancel, result: make(chan error, 1)}
	go func() { r.result <- l.acquire(ctx, owner) }()
	return r
}

// mustSucceed ends the test unless the request has its turn without waiting for anything else.
func (r turnRequest) mustSucceed(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-r.result:
		if err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatal("the request waits for a turn")
	}
}

// mustWait ends the test if the request has ended.
func (r turnRequest) mustWait(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-r.result:
		t.Fatalf("the request has its turn (error: %v)", err)
	default:
	}
}

// mustBeUnused ends the test if the limit holds anything.
func mustBeUnused(t *testing.T, l *WatchLimit) {
	t.Helper()
	if len(l.mu.turnCounts) != 0 || len(l.turns) != 0 {
		t.Fatalf("%d owners and %d turns are left", len(l.mu.turnCounts), len(l.turns))
	}
}

func TestOwnerHasAtMostHalfOfTheTurns(t *testing.T) {
	for _, c := range []struct {
		name        string
		turns, most int
	}{{"an even number", 4, 2}, {"an odd number", 5, 3}, {"one", 1, 1}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewWatchLimit(c.turns)
				for range c.most {
					requestTurn(t, l, "mallory").mustSucceed(t)
				}
				excess := requestTurn(t, l, "mallory")
				excess.mustWait(t)
				for range c.turns - c.most {
					requestTurn(t, l, "alice").mustSucceed(t)
				}
				l.release("mallory")
				excess.mustSucceed(t)
			})
		})
	}
}

func TestTurnsAreLimitedInTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewWatchLimit(4)
		for _, owner := range []fanout.Owner{"mallory", "mallory", "alice", ""} {
			requestTurn(t, l, owner).mustSucceed(t)
		}
		fifth := requestTurn(t, l, "bob")
		fifth.mustWait(t)
		l.release("alice")
		fifth.mustSucceed(t)
	})
}

// The empty owner's watches serve all clients that select by scope alone.
func TestEmptyOwnerMayHaveAllTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewWatchLimit(4)
		for range 4 {
			requestTurn(t, l, "").mustSucceed(t)
		}
		fifth := requestTurn(t, l, "")
		fifth.mustWait(t)
		l.release("")
		fifth.mustSucceed(t)
	})
}

func TestReleaseForgetsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewWatchLimit(4)
		owners := []fanout.Owner{"mallory", "mallory", "alice", ""}
		for _, owner := range owners {
			requestTurn(t, l, owner).mustSucceed(t)
		}
		for _, owner := range owners {
			l.release(owner)
		}
		mustBeUnused(t, l)
	})
}

func TestCancelledWaitLeavesNothingBehind(t *testing.T) {
	errLeft := errors.New("the client left")
	for _, c := range []struct {
		name string
		held []fanout.Owner
	}{
		{"for a turn of the owner", []fanout.Owner{"mallory", "mallory"}},
		{"for any turn", []fanout.Owner{"", "", "", "mallory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewWatchLimit(4)
				for _, owner := range c.held {
					requestTurn(t, l, owner).mustSucceed(t)
				}
				waiting := requestTurn(t, l, "mallory")
				waiting.mustWait(t)
				waiting.cancel(errLeft)
				if err := <-waiting.result; !errors.Is(err, errLeft) {
					t.Errorf("the wait ended with %v, want %v", err, errLeft)
				}
				l.release(c.held[0])
				requestTurn(t, l, "mallory").mustSucceed(t)
				for _, owner := range append(c.held[1:], "mallory") {
					l.release(owner)
				}
				mustBeUnused(t, l)
			})
		})
	}
}
