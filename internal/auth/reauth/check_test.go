package reauth

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/auth"
)

// When a token ends is said by the wall clock. A wait for that end does not last hours longer if
// that clock is set back meanwhile.
func TestEndsAreAwaitedByTheClockThatRuns(t *testing.T) {
	now := time.Now()
	end := now.Add(5 * time.Second).Truncate(time.Second) // as a certificate has it
	token := &check{kind: ofCredential, credential: auth.NewTokenCredential(auth.Digest{}, auth.NewSecret("token"), end),
		confirmed: now, sweep: time.Minute}
	token.plan(now.Add(token.sweep))
	certificate := &check{kind: ofCredential, credential: provenByCertificate(t, "alice", end).Credential,
		confirmed: now, sweep: time.Minute, nextReview: now.Add(time.Minute)}
	certificate.credentialEnd = auth.MonotonicEnd(end, now)
	for what, at := range map[string]time.Time{
		"when a token is reviewed":        token.nextReview,
		"when a certificate is looked at": certificate.wake(time.Minute),
	} {
		if at == at.Round(0) { // which is what a wall clock alone can tell
			t.Errorf("%s: %v depends on the wall clock", what, at)
		}
		if !at.Equal(end) {
			t.Errorf("%s: %v, not %v", what, at, end)
		}
	}
}

// However what holds a credential is printed, its token does not show.
func TestChecksDoNotShowTokens(t *testing.T) {
	const token = "the-token"
	c := &check{credential: auth.NewTokenCredential(auth.Digest{}, auth.NewSecret(token), time.Time{})}
	for _, v := range []any{c, *c, &Lease{credential: c}, Lease{credential: c}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			text := fmt.Sprintf(verb, v)
			for _, shape := range []string{token, fmt.Sprintf("%x", token), fmt.Sprintf("%v", []byte(token))} {
				if strings.Contains(text, shape) {
					t.Errorf("%s of a %T shows the token: %s", verb, v, text)
				}
			}
		}
	}
}
