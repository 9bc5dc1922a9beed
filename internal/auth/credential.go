package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// Credential is what a request proved its identity by: a token or a certificate. It outlives its
// request only where a watch goes on under it, and then in package auth/reauth, not in the
// connection, whose next request is authenticated by what it brings itself. Immutable.
type Credential struct {
	key     Digest
	expires time.Time

	// token is kept because only the token itself can be reviewed again. That is how it becomes known
	// that its service account is gone, or the pod that it is bound to.
	token       Secret
	certificate *provenCertificate // nil: the proof was the token
}

// provenCertificate is a certificate and the user that it proved.
type provenCertificate struct {
	proof certificateProof
	user  *Identity
}

// certificateProof is a client's certificate as a proof: of the certificate's own user, or, for a
// front proxy, of the user that its headers name.
type certificateProof struct {
	chain        Chain
	isFrontProxy bool
	named        *Identity // by the headers of a front proxy; nil: they name none
}

// NewTokenCredential is a token, by its digest. Only an Authenticator makes the credential of a
// certificate, once the certificate is verified.
func NewTokenCredential(key Digest, token Secret, expires time.Time) *Credential {
	return &Credential{key: key, token: token, expires: expires}
}

// Key is equal for equal credentials.
func (c *Credential) Key() Digest { return c.key }

// Expires is when the credential ends by its own words; zero: it does not say. For a certificate
// that is final. A token has been read, not verified, and the API server accepts some for a minute
// more: for a token it is when to review it again.
func (c *Credential) Expires() time.Time { return c.expires }

// IsCertificate reports that the proof was a certificate, which can be shown to no other server.
func (c *Credential) IsCertificate() bool { return c.certificate != nil }

// tokenExpiry reads when a JWT ends by its own words; zero: it does not say, or is no JWT. Nothing
// is verified: it decides nothing but when the token is reviewed again.
func tokenExpiry(token string) time.Time {
	parts := strings.SplitN(token, ".", 4)
	if len(parts) != 3 {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
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
	if exp := *claims.Expiry; exp > 0 && exp < last {
		return time.Unix(int64(exp), 0)
	}
	return time.Time{}
}
