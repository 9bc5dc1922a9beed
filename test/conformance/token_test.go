package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// continueToken is what a list's continue token says (W-80).
type continueToken struct {
	Version string `json:"v"`
	RV      int64  `json:"rv"`
	Start   string `json:"start"`
}

func encodeToken(rv int64, start string) string {
	text, err := json.Marshal(continueToken{"meta.k8s.io/v1", rv, start})
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func decodeToken(token string) (continueToken, error) {
	var c continueToken
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return c, fmt.Errorf("token %q: %w", token, err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("token %q: %w", text, err)
	}
	return c, nil
}
