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
	// Audiences are those that a token may be for; none: the API server's own.
	Audiences []string
	// ClientCA vouches for client certificates; nil: they prove nothing.
	ClientCA *Authority
	// FrontProxy is believed about users; nil: no headers are.
	FrontProxy *FrontProxy
	// MaxTokens bounds the tokens that are remembered, good ones and bad ones each, and MaxReviews
	// the reviews of new ones that are under way. 0: 16384 and 64.
	MaxTokens, MaxReviews int
	// Local decides about tokens for Audiences, if there are any: the API server's own audiences are
	// not known here. nil: the API server decides everything.
	Local   LocalDecider
	Clock   clock.PassiveClock // nil: the real one
	Metrics *Metrics           // nil: nothing is registered
}

const (
	defaultTokensLimit       = 16 << 10
	defaultTokenReviewsLimit = 64
)

// Authenticator finds out which identity sends a request, in kube-apiserver's order: a front
// proxy's word, a client certificate, a bearer token. The first that is valid counts, whatever the
// others are. It looks at one request and knows nothing of earlier ones.
//
// A token in a WebSocket's subprotocol is not looked at: such a request passes through anyway.
type Authenticator struct {
	opts   AuthenticatorOptions
	hasher *Hasher
	tokens *tokens
}

// NewAuthenticator returns an Authenticator. It has no goroutines of its own.
func NewAuthenticator(o AuthenticatorOptions) *Authenticator {
	o.Clock = cmp.Or(o.Clock, clock.PassiveClock(clock.RealClock{}))
	o.MaxTokens, o.MaxReviews = cmp.Or(o.MaxTokens, defaultTokensLimit), cmp.Or(o.MaxReviews, defaultTokenReviewsLimit)
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	hasher := NewHasher()
	return &Authenticator{opts: o, hasher: hasher, tokens: newTokens(o, hasher)}
}

// ReadsHeader reports that a header, by its canonical key, is read for the identity of a request:
// Authenticate needs no other. A request whose Connection header names one of them must not be
// served at all, because a proxy on its way may have dropped it.
func (a *Authenticator) ReadsHeader(name string) bool {
	return strings.EqualFold(name, authorizationHeader) || hasPrefixFold(name, impersonatePrefix) ||
		a.opts.FrontProxy != nil && a.opts.FrontProxy.ReadsHeader(name)
}

// ClientCAs are the authorities that a TLS listener names to its clients; nil: it need not request
// certificates. The listener verifies none: each request is authenticated by the certificate.
func (a *Authenticator) ClientCAs() *x509.CertPool {
	var certificates []*x509.Certificate
	if a.opts.ClientCA != nil {
		certificates = append(certificates, a.opts.ClientCA.current()...)
	}
	if a.opts.FrontProxy != nil {
		certificates = append(certificates, a.opts.FrontProxy.Authority.current()...)
	}
	if len(certificates) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}

// Authenticate finds out which identity sends a request. ctx ends the wait for the API server's
// answer to another request with the same token.
func (a *Authenticator) Authenticate(ctx context.Context, r AuthnRequest) Result {
	result := a.authenticate(ctx, r)
	result.HasCertificate = len(r.Peer) > 0
	a.opts.Metrics.outcomes.WithLabelValues(string(result.Outcome)).Inc()
	return result
}

func (a *Authenticator) authenticate(ctx context.Context, r AuthnRequest) Result {
	if r.impersonates() {
		return Result{Outcome: Impersonating, At: a.opts.Clock.Now()}
	}
	byCertificate := a.authenticateCertificate(ctx, r)
	if byCertificate.Outcome == Authenticated || byCertificate.Outcome == Unknown {
		return byCertificate
	}
	token, ok := r.bearer()
	if !ok {
		return byCertificate
	}
	key := a.tokens.key(token)
	byToken := tokenResult(key, token, a.tokens.reviews.answer(ctx, key, token))
	if byToken.Outcome != Authenticated {
		byToken.Err = errors.Join(byCertificate.Err, byToken.Err)
	}
	return byToken
}

// authenticateCertificate authenticates by the client's certificate alone. The outcome is Unknown
// if its verification had no turn in time, and Anonymous if there is none that proves anything.
func (a *Authenticator) authenticateCertificate(ctx context.Context, r AuthnRequest) Result {
	now := a.opts.Clock.Now()
	chain := NewChain(r.Peer)
	if chain.Empty() {
		return Result{Outcome: Anonymous, At: now}
	}
	var proofs []certificateProof
	if p := a.opts.FrontProxy; p != nil {
		proofs = append(proofs, certificateProof{chain: chain, isFrontProxy: true, named: p.userOf(r.Header)})
	}
	if a.opts.ClientCA != nil {
		proofs = append(proofs, certificateProof{chain: chain})
	}
	var refusals []error
	for _, proof := range proofs {
		user, err := a.verify(ctx, flowcontrol.AddrFlow(r.From), proof, now)
		switch {
		case errors.Is(err, ErrBusy):
			return Result{Outcome: Unknown, At: now, Err: err}
		case err != nil:
			refusals = append(refusals, err)
		case user != nil:
			return Result{Outcome: Authenticated, Identity: user, Credential: a.credentialOf(proof, user), At: now}
		}
	}
	if len(refusals) == 0 {
		return Result{Outcome: Anonymous, At: now}
	}
	return Result{Outcome: Refused, At: now, Err: errors.Join(refusals...)}
}

// verify is the identity that a certificate proves at a moment; nil: none. flow shares the turns of
// verifications.
func (a *Authenticator) verify(ctx context.Context, flow flowcontrol.Flow, proof certificateProof, now time.Time) (
	user *Identity, err error) {
	if proof.isFrontProxy {
		user, err = proof.named, a.opts.FrontProxy.verify(ctx, flow, proof.chain, now)
	} else if err = a.opts.ClientCA.Verify(ctx, flow, proof.chain, now); err == nil {
		user, err = userOfCertificate(proof.chain.leaf())
	}
	if err != nil {
		return nil, certificateError(proof.chain.leaf(), err)
	}
	return user, nil
}

// credentialOf is the credential of a verified certificate.
func (a *Authenticator) credentialOf(proof certificateProof, user *Identity) *Credential {
	parts := []string{"certificate", string(proof.chain.digest[:])}
	if proof.isFrontProxy { // one certificate vouches for many users
		named := user.digest(a.hasher)
		parts = []string{"front proxy", string(proof.chain.digest[:]), string(named[:])}
	}
	return &Credential{key: a.hasher.Sum(parts...), expires: proof.chain.leaf().NotAfter,
		certificate: &provenCertificate{proof, user}}
}

// tokenResult is the result of the review of a token.
func tokenResult(key Digest, token Secret, review Answer[TokenVerdict]) Result {
	verdict := review.Value
	switch {
	case review.Err != nil:
		return Result{Outcome: Unknown, At: review.At, Err: review.Err}
	case verdict.Identity == nil:
		return Result{Outcome: Refused, At: review.At, Err: verdict.Refusal}
	}
	c := NewTokenCredential(key, token, verdict.Expires)
	return Result{Outcome: Authenticated, Identity: verdict.Identity, Credential: c, At: review.At}
}

// IsVouchedFor reports that an authority vouches for a client's certificate now. from and ctx are
// as in Authority.Verify. It names no user, and nothing may be allowed for it.
func (a *Authenticator) IsVouchedFor(ctx context.Context, from netip.Addr, certificates []*x509.Certificate) bool {
	chain, flow, now := NewChain(certificates), flowcontrol.AddrFlow(from), a.opts.Clock.Now()
	if chain.Empty() {
		return false
	}
	if p := a.opts.FrontProxy; p != nil && p.verify(ctx, flow, chain, now) == nil {
		return true
	}
	return a.opts.ClientCA != nil && a.opts.ClientCA.Verify(ctx, flow, chain, now) == nil
}

// Renew proves a credential again, now. The outcome is Authenticated, Refused or Unknown.
func (a *Authenticator) Renew(ctx context.Context, c *Credential) Result {
	if c.certificate == nil {
		return tokenResult(c.key, c.token, a.tokens.reviews.renew(ctx, c.key, c.token))
	}
	now := a.opts.Clock.Now()
	user, err := a.verify(ctx, flowcontrol.UserFlow(c.certificate.user.Name()), c.certificate.proof, now)
	switch {
	case errors.Is(err, ErrBusy):
		return Result{Outcome: Unknown, At: now, Err: err}
	case err != nil || user == nil:
		return Result{Outcome: Refused, At: now, Err: err}
	}
	return Result{Outcome: Authenticated, Identity: user, Credential: c, At: now}
}

// RecallIdentity is the identity that the API server has lately found a request's bearer token to
// prove; nil: none is remembered. No review is sent, and nothing may be allowed for it: it
// distinguishes users.
func (a *Authenticator) RecallIdentity(r AuthnRequest) *Identity {
	token, ok := r.bearer()
	if !ok {
		return nil
	}
	review, _ := a.tokens.reviews.recall(a.tokens.key(token))
	return review.Value.Identity
}

// RecallToken is when a review last found the token of a key good, and which identity it proved, if
// that is remembered.
func (a *Authenticator) RecallToken(key Digest) (at time.Time, user *Identity, ok bool) {
	review, ok := a.tokens.reviews.recall(key)
	return review.At, review.Value.Identity, ok && review.Err == nil && review.Value.Identity != nil
}
