package auth

import (
	"testing"
	"time"
)

// When a token ends is told by the wall clock. Who waits for that end does not wait for hours longer if that clock is set back meanwhile, and what
// is remembered until then is not remembered for hours.
func TestEndsAreAwaitedByTheClockThatRuns(t *testing.T) {
	now := time.Now()
	end := now.Add(5 * time.Second).Round(0)
	token := &check{kind: ofCredential, credential: &Credential{token: newSecret("token"), expires: end}, confirmed: now, sweep: time.Minute}
	token.plan(now.Add(token.sweep))
	certificate := &check{kind: ofCredential, credential: &Credential{expires: end}, confirmed: now, sweep: time.Minute, next: now.Add(time.Minute)}
	certificate.ends = moment(end, now)
	who := &Identity{name: "somebody"}
	for what, at := range map[string]time.Time{
		"when a token is asked about":      token.next,
		"when a certificate is looked at":  certificate.wake(time.Minute),
		"until when a proof is remembered": proofUntil(answer[proof]{value: proof{who: who, expires: end}, at: now}),
	} {
		if at == at.Round(0) { // which is what a wall clock alone can tell
			t.Errorf("%s: %v depends on the wall clock", what, at)
		}
		if !at.Equal(end) {
			t.Errorf("%s: %v, not %v", what, at, end)
		}
	}
}
