package auth

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"time"
)

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
