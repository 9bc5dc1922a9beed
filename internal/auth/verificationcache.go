package auth

import (
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"spillway/internal/rotation"
)

const (
	// goodVerificationsLimit and badVerificationsLimit are how many verifications are remembered, one
	// for each chain.
	goodVerificationsLimit = 16 << 10
	badVerificationsLimit  = 1 << 10
	// verificationTTL is how long a verification is remembered at most.
	verificationTTL = 24 * time.Hour
)

// verification is the result of verifying a chain. It stays true from since until its end in the
// cache, both exclusive.
type verification struct {
	err   error     // nil: the authorities vouch for the chain
	since time.Time // zero: unbounded
}

// verificationCache remembers verifications by the current authorities for as long as the clock
// leaves them true. Good and bad ones are remembered apart, so that self-made chains cannot push
// out those in use.
type verificationCache struct {
	mu sync.Mutex
	// Guarded by mu.
	authorities *rotation.Authorities // by which all were verified
	good, bad   *AnswerCache[verification]
}

// recall returns the verification of a chain that is true at a moment, if it is remembered. It
// empties the cache after the authorities' file has changed.
func (c *verificationCache) recall(by *rotation.Authorities, chain Chain, at time.Time) (verification, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authorities != by {
		c.authorities = by
		c.good = NewAnswerCache[verification](goodVerificationsLimit)
		c.bad = NewAnswerCache[verification](badVerificationsLimit)
	}
	for _, cache := range []*AnswerCache[verification]{c.good, c.bad} {
		if a, ok := cache.Recall(chain.digest, at); ok && at.After(a.Value.since) {
			return a.Value, true
		}
	}
	return verification{}, false
}

// note remembers the result of verifying a chain at a moment, unless the cache is of other
// authorities by now.
func (c *verificationCache) note(by *rotation.Authorities, chain Chain, at time.Time, err error) {
	since, until := unchangedPeriod(at, slices.Concat(chain.certificates, by.Certificates))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authorities != by || !at.After(since) {
		return
	}
	cache := c.good
	if err != nil {
		cache = c.bad
	}
	cache.Note(chain.digest, Answer[verification]{Value: verification{err, since}, At: at}, until, at)
}

// unchangedPeriod is the time around a moment in which no certificate begins or ends, at most until
// verificationTTL after it. Both ends are exclusive. If since is zero, the time has no beginning.
func unchangedPeriod(at time.Time, certificates []*x509.Certificate) (since, until time.Time) {
	until = at.Add(verificationTTL)
	for _, c := range certificates {
		for _, moment := range []time.Time{c.NotBefore, c.NotAfter} {
			switch {
			case moment.After(until):
			case moment.After(at):
				until = moment
			case moment.After(since):
				since = moment
			}
		}
	}
	return since, until
}
