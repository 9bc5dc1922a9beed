package auth

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"spillway/internal/auth/authtest"
)

// A proof is not remembered for hours beyond the end of its token after the wall clock was set
// back.
func TestProofsAreRememberedByTheClockThatRuns(t *testing.T) {
	now := time.Now()
	end := now.Add(5 * time.Second).Round(0)
	alice := TokenVerdict{Identity: &Identity{name: "alice"}, Expires: end}
	until := proofUntil(Answer[TokenVerdict]{Value: alice, At: now})
	if until == until.Round(0) { // which is what a wall clock alone can tell
		t.Errorf("%v depends on the wall clock", until)
	}
	if !until.Equal(end) {
		t.Errorf("%v, not %v", until, end)
	}
}

// A file of authorities that was rotated counts a second later also after the wall clock was set
// back.
func TestClockJumpsDoNotKeepAuthorities(t *testing.T) {
	for name, by := range authtest.Jumps {
		t.Run(name, func(t *testing.T) {
			clock := authtest.NewClock(t)
			first, second := authtest.NewCA(t, "first", clock.Base()), authtest.NewCA(t, "second", clock.Base())
			file := authtest.WriteCAFile(t, authtest.PEM(first.Cert))
			synctest.Test(t, func(t *testing.T) {
				clock.Begin()
				a, err := NewAuthority(file, clock, zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				clock.Jump(by)
				if err := os.WriteFile(file, authtest.PEM(second.Cert), 0o600); err != nil {
					t.Fatal(err)
				}
				time.Sleep(authorityReloadInterval)
				if certs := a.current(); !certs[0].Equal(second.Cert) {
					t.Error("the first authority still counts")
				}
			})
		})
	}
}
