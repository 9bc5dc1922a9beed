package exchange

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// ContinueToken is what a list's continue token says (W-80).
type ContinueToken struct {
	Version string `json:"v"`
	RV      int64  `json:"rv"`
	Start   string `json:"start"`
}

// EncodeToken makes the token of an API server.
func EncodeToken(rv int64, start string) string {
	return TextOfToken(ContinueToken{"meta.k8s.io/v1", rv, start})
}

// TextOfToken encodes a token, whatever it says.
func TextOfToken(c ContinueToken) string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeToken reads a token that may be none.
func DecodeToken(token string) (ContinueToken, error) {
	var c ContinueToken
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return c, fmt.Errorf("token %q: %w", token, err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("token %q: %w", text, err)
	}
	return c, nil
}
