package authcluster

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Leeway is how long upstream takes a service account's token after its end (go-jose's
// jwt.DefaultLeeway).
const Leeway = time.Minute

// Expire is a service account's token made over so that it ends at a time, which may be over:
// signed with upstream's own key.
func (c *Cluster) Expire(t *testing.T, token string, end time.Time) string {
	t.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	claims["iat"], claims["nbf"], claims["exp"] = end.Add(-time.Hour).Unix(), end.Add(-time.Hour).Unix(), end.Unix()
	if text, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
	return signed + "." + base64.RawURLEncoding.EncodeToString(c.sign(t, signed))
}

// sign signs as upstream does, by ES256.
func (c *Cluster) sign(t *testing.T, text string) []byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(c.Dir(), "service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(file)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signature
}
