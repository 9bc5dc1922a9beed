package auth

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// AuthnRequest is what authentication looks at.
type AuthnRequest struct {
	// Header has at least the headers that Authenticator.Reads names, by their canonical keys.
	Header http.Header
	// Peer are the certificates that the client sent, its own first. That it holds the key to it is
	// known by the handshake; nothing else about them is.
	Peer []*x509.Certificate
	// From shares the turns of verifications: the client's address.
	From netip.Addr
}

const (
	authorizationHeader = "Authorization"
	impersonatePrefix   = "Impersonate-"
)

// impersonates reports that the request asks for another identity. Upstream knows four such
// headers; whatever begins like them counts here, since a request too many that passes through does
// no harm.
func (r AuthnRequest) impersonates() bool {
	for name := range r.Header {
		if hasPrefixFold(name, impersonatePrefix) {
			return true
		}
	}
	return false
}

// bearer is the only bearer token of the request. Two prove nothing: upstream reads the first, and
// a proxy in front of it may read the last.
func (r AuthnRequest) bearer() (Secret, bool) {
	if len(r.Header[authorizationHeader]) != 1 {
		return Secret{}, false
	}
	return BearerToken(r.Header)
}

// BearerToken is the token that kube-apiserver reads of a request with these headers, unless it is
// an upgrade: of the first Authorization, after the scheme in any case, up to the next blank. Of an
// upgrade it also reads a WebSocket's subprotocol (W-119).
func BearerToken(h http.Header) (Secret, bool) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(h.Get(authorizationHeader)), " ")
	token, _, _ := strings.Cut(rest, " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return Secret{}, false
	}
	return NewSecret(token), true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

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
	errNameless     = errors.New("the token belongs to no user")
	errUnaskable    = errors.New("a review would ask about another token")
	errReplaced     = errors.New("the user of the token has a U+FFFD, which may stand for another byte")
)

// Credential is what a request proved its identity by. It outlives its request only where a watch
// goes on under it, and then in package auth/reauth, not in the connection: the next request on
// that is authenticated by what it brings itself.
//
// A token is kept as such, since only the token itself can be reviewed again, which is how it is
// known that a service account or the pod that a token is bound to is gone. Immutable.
type Credential struct {
	key   Digest // equal for equal credentials
	token Secret // empty: by certificate

	// By certificate.
	peer  Chain
	front bool      // it is a front proxy's, which vouches for other users
	who   *Identity // that the certificate, or the front proxy, names

	// expires is when the credential ends by its own words; zero: it does not say. A certificate's
	// is final. A token's is when upstream has to be reviewed again: it has been read, not
	// verified, and upstream grants some tokens a minute more.
	expires time.Time
}

// NewCredential is a token, by its digest; without a token it is a certificate that is not shown.
func NewCredential(key Digest, token Secret, expires time.Time) *Credential {
	return &Credential{key: key, token: token, expires: expires}
}

// Key is equal for equal credentials.
func (c *Credential) Key() Digest { return c.key }

// Expires is when the credential ends by its own words; zero: it does not say. For a certificate
// that is final. For a token it is when it has to be reviewed again.
func (c *Credential) Expires() time.Time { return c.expires }

// IsCertificate reports that the proof was a certificate, which can be shown to no other server.
func (c *Credential) IsCertificate() bool { return c.token.empty() }

// tokenExpiry reads when a JWT ends by its own words; zero: it does not say, or is no JWT. Nothing
// is verified: it decides nothing but when the token is reviewed again.
func tokenExpiry(token string) time.Time {
	_, rest, ok := strings.Cut(token, ".")
	payload, signature, signed := strings.Cut(rest, ".")
	if !ok || !signed || strings.Contains(signature, ".") {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expiry *float64 `json:"exp"`
	}
	if json.Unmarshal(raw, &claims) != nil || claims.Expiry == nil {
		return time.Time{}
	}
	// Beyond what a time can be compared by there is no end worth waiting for.
	const last = 1 << 40
	if exp := *claims.Expiry; exp > 0 && exp < last && !math.IsNaN(exp) {
		return time.Unix(int64(exp), 0)
	}
	return time.Time{}
}
