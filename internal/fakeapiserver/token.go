package fakeapiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// token is a continue token: the state it pages through and the key to go on from (W-80).
type token struct {
	Version string `json:"v"`
	RV      int64  `json:"rv"`
	Start   string `json:"start"`
}

const (
	tokenVersion = "meta.k8s.io/v1"
	// inconsistentRV is an RV of tokens that go on in the state of their time (W-83).
	inconsistentRV = -1
)

// newToken goes on after key, which is relative to the namespace of the request.
func newToken(rv uint64, key string) token {
	return token{Version: tokenVersion, RV: int64(rv), Start: "/" + key + "\x00"}
}

func (t token) String() string {
	return base64.RawURLEncoding.EncodeToString(mustJSON(t))
}

// parseToken reads a continue token and returns it with Start relative, without leading slash
// (W-82).
func parseToken(s string) (token, error) {
	const invalid = "continue key is not valid"
	var t token
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	switch {
	case err != nil:
		return t, fmt.Errorf("%s: %w", invalid, err)
	case t.Version != tokenVersion:
		return t, fmt.Errorf("%s: server does not recognize this encoded version %s", invalid, t.Version)
	case t.RV == 0:
		return t, fmt.Errorf("%s: incorrect encoded start resourceVersion (version %s)", invalid, tokenVersion)
	case t.Start == "":
		return t, fmt.Errorf("%s: encoded start key empty (version %s)", invalid, tokenVersion)
	}
	key := "/" + strings.TrimPrefix(t.Start, "/")
	if path.Clean(key) != key {
		return t, fmt.Errorf("%s: %s", invalid, t.Start)
	}
	t.Start = key[1:]
	return t, nil
}
