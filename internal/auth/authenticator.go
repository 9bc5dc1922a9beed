package auth

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net/netip"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"spillway/internal/flowcontrol"
)

// AuthenticatorOptions configure an Authenticator.
type AuthenticatorOptions struct {
	Reviewer *Reviewer
	// Audiences are those that a token may be for; none: upstream's own.
	Audiences []string
	// ClientCA vouches for client certificates; nil: they prove nothing.
	ClientCA *Authority
	// FrontProxy is believed about users; nil: no headers are.
	FrontProxy *FrontProxy
	// MaxTokens bounds the tokens that are remembered, good ones and bad ones each, and MaxReviews
	// the reviews of new ones that are under way. 0: 16384 and 64.
	MaxTokens, MaxReviews int
	// Local decides about tokens for Audiences, if there are any: upstream's own audiences are not
	// known here. nil: upstream decides everything.
	Local   LocalDecider
	Clock   clock.PassiveClock // nil: the real one
	Metrics *Metrics           // nil: nothing is registered
}

// Authenticator finds out which identity sends a request, in kube-apiserver's order: a front
// proxy's word, a client certificate, a bearer token; the first that is good counts, whatever the
// others are. It looks at one request and knows nothing of the one before it.
//
// A token in a WebSocket's subprotocol is not looked at: such a request passes through anyway.
type Authenticator struct {
	opts    AuthenticatorOptions
	hasher  *Hasher
	tokens  *tokens
	clock   clock.PassiveClock
	metrics *Metrics
}

const (
	defaultTokens       = 16 << 10
	defaultTokenReviews = 64
)

// NewAuthenticator returns an Authenticator. It has no goroutines of its own.
func NewAuthenticator(o AuthenticatorOptions) *Authenticator {
	o.Clock = cmp.Or(o.Clock, clock.PassiveClock(clock.RealClock{}))
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	b := bounds{remembered: cmp.Or(o.MaxTokens, defaultTokens), underWay: cmp.Or(o.MaxReviews, defaultTokenReviews)}
	a := &Authenticator{opts: o, hasher: NewHasher(), tokens: newTokens(o.Reviewer, o.Audiences, b, o.Clock),
		clock: o.Clock, metrics: o.Metrics}
	a.tokens.reviews.count = o.Metrics.answers(reviewOfToken)
	if o.Local != nil && len(o.Audiences) > 0 {
		a.tokens.reviews.local = o.Local.Tokens(a.tokens.audiences, b.remembered, a.tokens.reviews.review)
	}
	return a
}

// ReadsHeader reports that a header, by its canonical key, is read for the identity of a request:
// Authenticate needs no other. A request whose Connection header names one of them must not be
// served at all, since a proxy on its way may have dropped it.
func (a *Authenticator) ReadsHeader(name string) bool {
	return strings.EqualFold(name, authorizationHeader) || hasPrefixFold(name, impersonatePrefix) ||
		a.opts.FrontProxy != nil && a.opts.FrontProxy.ReadsHeader(name)
}

// ClientCAs are what a TLS listener tells its clients that their certificates may be signed by;
// nil: it need not ask for any. Whether one is good is decided per request: the listener asks for
// certificates and verifies none.
func (a *Authenticator) ClientCAs() *x509.CertPool {
	authorities := a.opts.authorities()
	if len(authorities) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, authority := range authorities {
		for _, c := range authority.current() {
			pool.AddCert(c)
		}
	}
	return pool
}

func (o *AuthenticatorOptions) authorities() []*Authority {
	var all []*Authority
	if o.ClientCA != nil {
		all = append(all, o.ClientCA)
	}
	if o.FrontProxy != nil {
		all = append(all, o.FrontProxy.Authority)
	}
	return all
}

// Authenticate finds out which identity sends a request. ctx ends the wait for upstream's answer to
// another request with the same token.
func (a *Authenticator) Authenticate(ctx context.Context, r AuthnRequest) Result {
	result := a.authenticate(ctx, r)
	result.Certificate = len(r.Peer) > 0
	a.metrics.outcomes.WithLabelValues(string(result.Outcome)).Inc()
	return result
}

// RecallIdentity is the identity that upstream has lately found a request's bearer token to prove;
// nil: that is not remembered. No review is sent, and nothing may be allowed for it: it tells users
// apart.
func (a *Authenticator) RecallIdentity(r AuthnRequest) *Identity {
	token, ok := r.bearer()
	if !ok {
		return nil
	}
	said, _ := a.tokens.reviews.recall(a.tokens.key(token))
	return said.Value.Identity
}

func (a *Authenticator) authenticate(ctx context.Context, r AuthnRequest) Result {
	if r.impersonates() {
		return Result{Outcome: Impersonating, At: a.clock.Now()}
	}
	result, refusal := a.byPeer(ctx, r)
	if result.Outcome == Authenticated || result.Outcome == Unknown {
		return result
	}
	if token, ok := r.bearer(); ok {
		key := a.tokens.key(token)
		result = a.byToken(token, key, a.tokens.reviews.answer(ctx, key, token))
		if result.Outcome == Authenticated {
			return result
		}
		refusal = errors.Join(refusal, result.Err)
	} else if refusal != nil {
		result.Outcome = Refused
	}
	result.Err = refusal
	return result
}

// byPeer looks at the client's certificate. The error says why it proves nothing, if there is one.
// The outcome is Unknown if that could not be found out in time.
func (a *Authenticator) byPeer(ctx context.Context, r AuthnRequest) (Result, error) {
	now := a.clock.Now()
	peer := NewChain(r.Peer)
	if peer.Empty() {
		return Result{Outcome: Anonymous, At: now}, nil
	}
	var refusals []error
	var candidates []*Credential
	if p := a.opts.FrontProxy; p != nil {
		candidates = append(candidates, &Credential{peer: peer, front: true, who: p.vouched(r.Header)})
	}
	if a.opts.ClientCA != nil {
		candidates = append(candidates, &Credential{peer: peer})
	}
	for _, c := range candidates {
		who, err := a.certified(ctx, flowcontrol.AddrFlow(r.From), c, now)
		switch {
		case errors.Is(err, ErrBusy):
			return Result{Outcome: Unknown, At: now, Err: err}, err
		case err == nil && who != nil:
			c.who = who
			return a.byCertificate(c, now), nil
		}
		refusals = append(refusals, err)
	}
	return Result{Outcome: Anonymous, At: now}, errors.Join(refusals...)
}

// IsVouchedFor reports that an authority vouches for a client's certificate now. from and ctx are
// as in Authority.Verify. It names no user, and nothing may be allowed for it.
func (a *Authenticator) IsVouchedFor(ctx context.Context, from netip.Addr, certificates []*x509.Certificate) bool {
	peer, flow, now := NewChain(certificates), flowcontrol.AddrFlow(from), a.clock.Now()
	if peer.Empty() {
		return false
	}
	if p := a.opts.FrontProxy; p != nil && p.verify(ctx, flow, peer, now) == nil {
		return true
	}
	return a.opts.ClientCA != nil && a.opts.ClientCA.Verify(ctx, flow, peer, now) == nil
}

// certified is the identity that a certificate proves; nil: none. from shares the turns.
func (a *Authenticator) certified(ctx context.Context, from flowcontrol.Flow, c *Credential, now time.Time) (*Identity,
	error) {
	who, err := c.who, error(nil)
	if c.front {
		err = a.opts.FrontProxy.verify(ctx, from, c.peer, now)
	} else if err = a.opts.ClientCA.Verify(ctx, from, c.peer, now); err == nil {
		who, err = userOfCertificate(c.peer.leaf())
	}
	if err != nil {
		return nil, certificateError(c.peer.leaf(), err)
	}
	return who, nil
}

// byCertificate is the result for a verified certificate, whose user is in c.
func (a *Authenticator) byCertificate(c *Credential, now time.Time) Result {
	kind := "certificate"
	if c.front {
		kind = "front proxy"
	}
	parts := []string{kind, string(c.peer.digest[:])}
	if c.front { // one certificate vouches for many users
		who := c.who.digest(a.hasher)
		parts = append(parts, string(who[:]))
	}
	c.key = a.hasher.Sum(parts...)
	c.expires = c.peer.leaf().NotAfter
	return Result{Outcome: Authenticated, Identity: c.who, Credential: c, At: now}
}

// byToken is the result for what upstream says of a token.
func (a *Authenticator) byToken(token Secret, key Digest, said Answer[TokenVerdict]) Result {
	switch {
	case said.Err != nil:
		return Result{Outcome: Unknown, At: said.At, Err: said.Err}
	case said.Value.Identity == nil:
		return Result{Outcome: Refused, At: said.At, Err: said.Value.Refusal}
	}
	c := NewCredential(key, token, said.Value.Expires)
	return Result{Outcome: Authenticated, Identity: said.Value.Identity, Credential: c, At: said.At}
}

// Renew proves a credential again, now. The outcome is Authenticated, Refused or Unknown.
func (a *Authenticator) Renew(ctx context.Context, c *Credential) Result {
	if !c.token.empty() {
		return a.byToken(c.token, c.key, a.tokens.reviews.renew(ctx, c.key, c.token))
	}
	now := a.clock.Now()
	who, err := a.certified(ctx, flowcontrol.UserFlow(c.who.Name()), c, now)
	switch {
	case errors.Is(err, ErrBusy):
		return Result{Outcome: Unknown, At: now, Err: err}
	case err != nil || who == nil:
		return Result{Outcome: Refused, At: now, Err: err}
	}
	return Result{Outcome: Authenticated, Identity: who, Credential: c, At: now}
}

// RecallToken is when upstream was last asked about the token of a key that it found good, and
// which identity it proved, if that is remembered.
func (a *Authenticator) RecallToken(key Digest) (at time.Time, who *Identity, ok bool) {
	said, ok := a.tokens.reviews.recall(key)
	return said.At, said.Value.Identity, ok && said.Err == nil && said.Value.Identity != nil
}
