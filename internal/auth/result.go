package auth

import (
	"errors"
	"time"
)

// Outcome is the result of an attempt to authenticate a request. Unless it is Authenticated, the
// request gets nothing from memory: it passes through unchanged, and upstream answers it in its own
// words.
type Outcome string

// The outcomes, which are also the labels of metrics.
const (
	// Authenticated: the identity is known.
	Authenticated Outcome = "success"
	// Anonymous: the request shows nothing that is looked at here. What upstream makes of it
	// depends on its flags.
	Anonymous Outcome = "anonymous"
	// Refused: the request shows credentials, and they are no good.
	Refused Outcome = "failure"
	// Impersonating: the request has Impersonate-* headers, and nothing else of it was looked at.
	// They are upstream's to judge: whether they are allowed depends on feature gates of the
	// apiserver that cannot be seen from outside (constrained impersonation, KEP-5284), and only if
	// upstream itself does it, its audit log names both users.
	Impersonating Outcome = "impersonation"
	// Unknown: upstream did not answer a review.
	Unknown Outcome = "error"
)

// Outcomes are all of them, so that each is a metric from the start.
var Outcomes = []Outcome{Authenticated, Anonymous, Refused, Impersonating, Unknown}

// Result is what is known of the identity that sends a request.
type Result struct {
	Outcome Outcome
	// Identity is nil unless Authenticated.
	Identity *Identity
	// Credential is what the identity was proven by; nil unless Authenticated.
	Credential *Credential
	// At is when that was known: the review was sent then, or a certificate verified.
	At time.Time
	// Certificate says that the client sent a certificate, good or not. Upstream cannot be shown
	// it, so a request that passes through has lost a part of what it was sent with.
	Certificate bool
	// Err says why, if Refused or Unknown. It holds no credentials.
	Err error
}

var (
	errRefusedToken = errors.New("upstream does not know the token")
	errAudience     = errors.New("the token is for another audience")
	errNameless     = errors.New("the token is nobody's")
	errUnaskable    = errors.New("a review would ask about another token")
	errReplaced     = errors.New("the user of the token has a U+FFFD, which may stand for another byte")
)
