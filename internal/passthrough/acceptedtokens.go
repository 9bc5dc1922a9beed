package passthrough

import (
	"net/http"
	"sync"
	"time"

	"spillway/internal/auth"
)

const (
	// acceptedTokensLimit is how many tokens are remembered, in some 3 MB.
	acceptedTokensLimit = 16 << 10
	// acceptedTokenPeriod is how long one is remembered after an answer to it.
	acceptedTokenPeriod = 10 * time.Minute
)

// acceptedTokens remembers bearer tokens that upstream has accepted with a request that passed
// through. That only gives their senders a larger part of the limits, so a token that is revoked
// meanwhile does no harm.
type acceptedTokens struct {
	hasher *auth.Hasher

	mu     sync.Mutex
	tokens *auth.AnswerCache[struct{}]
}

func newAcceptedTokens() *acceptedTokens {
	return &acceptedTokens{hasher: auth.NewHasher(), tokens: auth.NewAnswerCache[struct{}](acceptedTokensLimit)}
}

// digest stands for the bearer token of a request. A token in another place than Authorization does
// not count: upstream reads it in some requests only.
func (t *acceptedTokens) digest(h http.Header) (auth.Digest, bool) {
	token, ok := auth.BearerToken(h)
	if !ok {
		return auth.Digest{}, false
	}
	return t.hasher.Sum(token.Reveal()), true
}

// addToken remembers the token of a request that upstream has accepted, if it has one.
func (t *acceptedTokens) addToken(h http.Header) {
	if token, ok := t.digest(h); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		now := time.Now()
		t.tokens.Note(token, auth.Answer[struct{}]{At: now}, now.Add(acceptedTokenPeriod), now)
	}
}

// hasToken reports that upstream has lately accepted the token of a request.
func (t *acceptedTokens) hasToken(h http.Header) bool {
	token, ok := t.digest(h)
	if !ok {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, accepted := t.tokens.Recall(token, time.Now())
	return accepted
}

// isAcceptance reports that an answer shows that upstream knows the bearer of the request's token:
// it refuses a bad one with 401 before it looks at anything else. Answers that a party between the
// proxy and upstream may have given show nothing.
func isAcceptance(status int) bool {
	switch status {
	case http.StatusSwitchingProtocols, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone,
		http.StatusUnprocessableEntity:
		return true
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices
}
