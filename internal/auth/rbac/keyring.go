package rbac

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

const (
	issuerDocument = "/.well-known/openid-configuration"
	keysDocument   = "/openid/v1/jwks"
)

// keySet is the public keys that the API server signs tokens of service accounts with. It is proven
// as a PermissionTable is: the documents are fetched again and again, and count for as long as any
// answer does. So a new key is known soon, and a withdrawn one is not used for longer than a review
// would be remembered. A token cannot cause a search for a key.
type keySet struct {
	issuer string
	keys   map[string]*jose.JSONWebKey // by id; replaced, never changed
	proven time.Time                   // when they were requested
}

// signatureAlgorithms are those that kube-apiserver signs with. What a token says of itself chooses
// among them, and its key has to fit.
var signatureAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

var (
	errNoIssuer = errors.New("upstream does not name the issuer of its tokens")
	errNoKeys   = errors.New("upstream publishes no key that can be used")
)

// fetchKeys fetches the API server's issuer and keys.
func (r *LocalAuthorizer) fetchKeys(ctx context.Context) error {
	began := r.clock.Now()
	raw, err := r.opts.Reviewer.Fetch(ctx, issuerDocument)
	if err != nil {
		return err
	}
	var configuration struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(raw, &configuration); err != nil || configuration.Issuer == "" {
		return errNoIssuer
	}
	if raw, err = r.opts.Reviewer.Fetch(ctx, keysDocument); err != nil {
		return err
	}
	keys := parseKeys(raw)
	if len(keys) == 0 {
		return errNoKeys
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, key := range keys {
		if old := r.keys.keys[id]; old != nil && isSameKey(old, key) {
			keys[id] = old // what was verified by it stays so
		}
	}
	r.keys = keySet{configuration.Issuer, keys, began}
	return nil
}

// parseKeys reads a set of keys. Only those count that have an id of their own, are public and are
// for signatures. Others are left out, as are those that cannot be read.
func parseKeys(raw []byte) map[string]*jose.JSONWebKey {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(raw, &set) != nil {
		return nil
	}
	keys := map[string]*jose.JSONWebKey{}
	seen := map[string]bool{}
	for _, one := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(one) != nil || key.KeyID == "" {
			continue
		}
		if seen[key.KeyID] {
			delete(keys, key.KeyID)
			continue
		}
		seen[key.KeyID] = true
		if key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			keys[key.KeyID] = &key
		}
	}
	return keys
}

func isSameKey(a, b *jose.JSONWebKey) bool {
	x, errX := a.MarshalJSON()
	y, errY := b.MarshalJSON()
	return errX == nil && errY == nil && string(x) == string(y)
}
