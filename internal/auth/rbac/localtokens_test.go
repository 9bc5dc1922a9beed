package rbac

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"spillway/internal/auth"
	"spillway/internal/auth/reauth"
	"spillway/internal/auth/reauth/reauthtest"
)

const testIssuer = "https://kubernetes.default.svc"

// tokenSigner signs tokens as kube-apiserver does, and any other.
type tokenSigner struct {
	t   *testing.T
	kid string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

func newMint(t *testing.T, kid string, alg jose.SignatureAlgorithm) *tokenSigner {
	t.Helper()
	m := &tokenSigner{t: t, kid: kid, alg: alg}
	var err error
	if alg == jose.RS256 {
		m.key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		m.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// public is the key as upstream publishes it.
func (m *tokenSigner) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: m.key.Public(), KeyID: m.kid, Algorithm: string(m.alg), Use: "sig"}
}

// sign makes a token. header overrides what its head says.
func (m *tokenSigner) sign(claims map[string]any) string {
	m.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: m.alg, Key: jose.JSONWebKey{Key: m.key, KeyID: m.kid}}, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return serialize(m.t, signer, claims)
}

func serialize(t testing.TB, signer jose.Signer, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// claims are those of a token for c1/robot, for an hour, with changes: nil takes one out. What
// begins with a dot is kubernetes.io's.
func claims(changes map[string]any) map[string]any {
	now := time.Now().Unix()
	bound := map[string]any{"namespace": "c1", "serviceaccount": map[string]any{"name": "robot", "uid": "sa-1"}}
	all := map[string]any{
		"iss": testIssuer, "aud": []string{"api"}, "sub": "system:serviceaccount:c1:robot", "jti": "id-1",
		"iat": now, "nbf": now, "exp": now + 3600, "kubernetes.io": bound,
	}
	for name, value := range changes {
		into := all
		if rest, ok := strings.CutPrefix(name, "."); ok {
			into, name = bound, rest
		}
		if into[name] = value; value == nil {
			delete(into, name)
		}
	}
	return all
}

var inPod = map[string]any{
	".pod": map[string]any{"name": "p", "uid": "pod-1"}, ".node": map[string]any{"name": "n", "uid": "node-1"},
	".warnafter": 5,
}

// publish has upstream publish keys.
func (g *registry) publish(keys ...jose.JSONWebKey) {
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		g.t.Fatal(err)
	}
	g.do(func() {
		g.documents[issuerDocument] = fmt.Sprintf(`{"issuer":%q,"jwks_uri":"https://10.0.0.1/openid/v1/jwks"}`, testIssuer)
		g.documents[keysDocument] = string(raw)
	})
}

// onMint runs a test with tokens that are verified here: c1/robot and its pod p exist.
func onMint(t *testing.T, kept TokenMode, test func(g *guard, m *tokenSigner)) {
	t.Helper()
	m := newMint(t, "k1", jose.RS256)
	onGuard(t, func(g *guard, s *setup) {
		s.rights.Tokens, s.Authn.Audiences, s.Reauth.Sweep = kept, []string{"api", "other"}, 0
		g.registry.publish(m.public())
		g.put("serviceaccounts",
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "robot", UID: "sa-1"}})
		g.put("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "p", UID: "pod-1"}})
	}, func(g *guard) { test(g, m) })
}

// shows checks what becomes of a token, and how many reviews that took.
func (g *guard) shows(what, token string, want auth.Outcome, reviews int) auth.Result {
	g.patrol.T.Helper()
	before, _ := g.CountReviews()
	result := g.authn.Authenticate(context.Background(), reauthtest.WithToken(token))
	after, _ := g.CountReviews()
	if result.Outcome != want || after-before != reviews {
		g.patrol.T.Errorf("%s: %s by %d reviews, want %s by %d", what, result.Outcome, after-before, want, reviews)
	}
	if result.Outcome == auth.Authenticated && time.Since(result.At) >= auth.AnswerTTL {
		g.patrol.T.Errorf("%s: known since %v", what, time.Since(result.At))
	}
	return result
}

// A token whose keys, service account and pod are known is accepted without a review, as the user
// that upstream would name.
func TestLocalTokens(t *testing.T) {
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256} {
		m := newMint(t, "k2", alg)
		onMint(t, TokensPods, func(g *guard, _ *tokenSigner) {
			g.registry.publish(m.public())
			time.Sleep(auth.AnswerTTL)
			result := g.shows("unbound", m.sign(claims(nil)), auth.Authenticated, 0)
			want := authenticationv1.UserInfo{
				Username: "system:serviceaccount:c1:robot", UID: "sa-1",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:c1", "system:authenticated"},
				Extra:  map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=id-1"}},
			}
			if !result.Identity.Equal(auth.NewIdentity(want)) {
				t.Errorf("got %+v", result.Identity)
			}
			result = g.shows("bound", m.sign(claims(inPod)), auth.Authenticated, 0)
			want.Extra["authentication.kubernetes.io/pod-name"] = []string{"p"}
			want.Extra["authentication.kubernetes.io/pod-uid"] = []string{"pod-1"}
			want.Extra["authentication.kubernetes.io/node-name"] = []string{"n"}
			want.Extra["authentication.kubernetes.io/node-uid"] = []string{"node-1"}
			if !result.Identity.Equal(auth.NewIdentity(want)) {
				t.Errorf("got %+v", result.Identity)
			}
		})
	}
}

// A token that the local checks do not cover is sent to upstream for review, which refuses it here.
func TestLocalTokensLeaveTheRest(t *testing.T) {
	onMint(t, TokensPods, func(g *guard, m *tokenSigner) {
		now := time.Now().Unix()
		ref := func(name, uid string) map[string]any { return map[string]any{"name": name, "uid": uid} }
		for what, changes := range map[string]map[string]any{
			"another issuer": {"iss": "https://elsewhere"}, "no issuer": {"iss": nil},
			"another audience": {"aud": []string{"vault"}}, "no audience": {"aud": nil}, "audience of a kind": {"aud": 5},
			"expired": {"exp": now - 1}, "expires now": {"exp": now}, "without end": {"exp": nil},
			"end that is no number": {"exp": "never"},
			"not yet":               {"nbf": now + 2}, "issued in the future": {"iat": now + 2},
			"another subject": {"sub": "system:serviceaccount:c1:admin"}, "subject is a user": {"sub": "admin"},
			"no subject":        {"sub": nil},
			"another namespace": {".namespace": "c2"}, "no account": {".serviceaccount": nil},
			"unknown account":     {"sub": "system:serviceaccount:c1:x", ".serviceaccount": ref("x", "sa-1")},
			"account of old":      {".serviceaccount": ref("robot", "sa-0")},
			"account without uid": {".serviceaccount": map[string]any{"name": "robot"}},
			"pod of old":          {".pod": ref("p", "pod-0")}, "unknown pod": {".pod": ref("q", "pod-1")},
			"pod is null":       {".pod": nil, ".poddy": ref("p", "pod-1")},
			"bound to a secret": {".secret": ref("s", "1")}, "bound to a node": {".node": ref("n", "1")},
			"bound to a webhook":        {".validatingwebhookconfiguration": ref("w", "1")},
			"a word of a later version": {".serviceaccount": map[string]any{"name": "robot", "uid": "sa-1", "generation": "2"}},
			"no binding":                {"kubernetes.io": nil}, "binding of a kind": {"kubernetes.io": []string{"c1"}},
		} {
			g.shows(what, m.sign(claims(changes)), auth.Refused, 1)
		}
		stranger := newMint(t, "k9", jose.RS256)
		g.shows("unknown key", stranger.sign(claims(nil)), auth.Refused, 1)
		stranger.kid = "k1"
		g.shows("another key by the same name", stranger.sign(claims(nil)), auth.Refused, 1)
		unnamed := &tokenSigner{t: t, alg: m.alg, key: m.key}
		g.shows("unnamed key", unnamed.sign(claims(nil)), auth.Refused, 1)
		elliptic := newMint(t, "k1", jose.ES256)
		g.shows("another algorithm", elliptic.sign(claims(nil)), auth.Refused, 1)
		pss := &tokenSigner{t: t, kid: "k1", alg: jose.PS256, key: m.key}
		g.shows("an algorithm that upstream does not use", pss.sign(claims(nil)), auth.Refused, 1)
		der, err := x509.MarshalPKIXPublicKey(m.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		for _, shared := range [][]byte{der, []byte(strings.Repeat("k", 32))} { // the public key as a shared secret
			signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: shared, KeyID: "k1"}},
				nil)
			if err != nil {
				t.Fatal(err)
			}
			g.shows("HS256", serialize(t, signer, claims(nil)), auth.Refused, 1)
		}
		good := m.sign(claims(nil))
		parts := strings.Split(good, ".")
		head := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		for what, token := range map[string]string{
			"none":              head(`{"alg":"none","kid":"k1"}`) + "." + parts[1] + ".",
			"none, signed":      head(`{"alg":"none","kid":"k1"}`) + "." + parts[1] + "." + parts[2],
			"None":              head(`{"alg":"None","kid":"k1"}`) + "." + parts[1] + "." + parts[2],
			"without signature": parts[0] + "." + parts[1] + ".",
			"two parts":         parts[0] + "." + parts[1],
			"four parts":        good + ".",
			"padded":            good + "=",
			"cut":               good[:len(good)-4],
			"claims changed": parts[0] + "." + head(strings.Replace(mustDecode(t, parts[1]), "robot", "admin", 2)) + "." +
				parts[2],
			"key in the head": withOwnKey(t, stranger),
			"a critical word": head(`{"alg":"RS256","kid":"k1","crit":["x"],"x":1}`) + "." + parts[1] + "." + parts[2],
			"as an object":    `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
			"long":            m.sign(claims(map[string]any{"x": strings.Repeat("x", tokenBytesLimit)})),
			"opaque":          "opaque",
		} {
			if what == "as an object" {
				token = strings.ReplaceAll(token, " ", "")
			}
			g.shows(what, token, auth.Refused, 1)
		}
		g.shows("the same without a change", good, auth.Authenticated, 0)
		if n := g.counted(g.reads, keysDocument); n > 2 {
			t.Errorf("the keys were fetched %d times", n)
		}
	})
}

func mustDecode(t *testing.T, part string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// withOwnKey is a token that brings the key to verify it by.
func withOwnKey(t *testing.T, m *tokenSigner) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: m.alg, Key: m.key},
		&jose.SignerOptions{EmbedJWK: true, ExtraHeaders: map[jose.HeaderKey]any{"kid": "k1"}})
	if err != nil {
		t.Fatal(err)
	}
	return serialize(t, signer, claims(nil))
}

// Where pods are not watched, a token that is bound to one is upstream's to judge.
func TestLocalTokensWithoutPods(t *testing.T) {
	onMint(t, TokensUnbound, func(g *guard, m *tokenSigner) {
		g.shows("unbound", m.sign(claims(nil)), auth.Authenticated, 0)
		g.shows("bound", m.sign(claims(inPod)), auth.Refused, 1)
		if n := g.counted(g.follows, "pods"); n != 0 {
			t.Errorf("pods were watched %d times", n)
		}
	})
	// Nor is anything decided without audiences: which are upstream's own cannot be seen.
	m := newMint(t, "k1", jose.ES256)
	onGuard(t, func(g *guard, s *setup) {
		s.rights.Tokens = TokensPods
		g.publish(m.public())
		g.put("serviceaccounts",
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "robot", UID: "sa-1"}})
	}, func(g *guard) {
		time.Sleep(auth.AnswerTTL)
		g.shows("unbound", m.sign(claims(nil)), auth.Refused, 1)
	})
}

// What ceases to be ends it: a service account, a pod, one that is on its way out, a token's time.
func TestLocalTokensEnd(t *testing.T) {
	onMint(t, TokensPods, func(g *guard, m *tokenSigner) {
		bound, short := m.sign(claims(inPod)), m.sign(claims(map[string]any{"exp": time.Now().Unix() + 60}))
		g.shows("bound", bound, auth.Authenticated, 0)
		g.shows("short", short, auth.Authenticated, 0)
		stream, _ := g.patrol.Watch(reauthtest.WithToken(bound), "configmaps")
		other, _ := g.patrol.Watch(reauthtest.WithToken(short), "nodes")
		time.Sleep(59 * time.Second)
		g.shows("short", short, auth.Authenticated, 0)
		g.patrol.Expect(stream, true, "")
		g.patrol.Expect(other, true, "")
		if tokens, _ := g.CountReviews(); tokens != 0 {
			t.Errorf("%d reviews", tokens)
		}
		time.Sleep(1500 * time.Millisecond)
		g.shows("short, expired", short, auth.Refused, 0) // the watch has asked already
		g.patrol.Expect(other, false, reauth.EndCredentialExpired)

		g.remove("pods", "c1/p")
		time.Sleep(checkMinInterval)
		g.patrol.Expect(stream, false, reauth.EndUnauthenticated)
		g.shows("pod is gone", bound, auth.Refused, 0)
		unbound := m.sign(claims(nil))
		g.shows("unbound", unbound, auth.Authenticated, 0)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "robot", UID: "sa-1",
			DeletionTimestamp: &metav1.Time{Time: time.Now()}}}
		g.put("serviceaccounts", account)
		synctest.Wait()
		g.shows("account is ending", unbound, auth.Refused, 1)
		account.UID, account.DeletionTimestamp = types.UID("sa-2"), nil
		g.put("serviceaccounts", account)
		time.Sleep(auth.FailureTTL)
		g.shows("another account by its name", unbound, auth.Refused, 1)
	})
}

// A local answer may be as old as the one that a sweep wants to renew. The sweep then checks again
// a moment later, rather than at once in an endless loop.
func TestLocalTokensAreRenewed(t *testing.T) {
	m := newMint(t, "k1", jose.ES256)
	onGuard(t, func(g *guard, s *setup) {
		s.rights.Tokens, s.rights.RBAC, s.Authn.Audiences, s.Reauth.Sweep = TokensUnbound, true, []string{"api"},
			reauth.MinSweep
		g.registry.publish(m.public())
		g.put("serviceaccounts",
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "robot", UID: "sa-1"}})
		g.grant("c1", "configmaps", rbacv1.Subject{Kind: "ServiceAccount", Name: "robot"}, reads("configmaps"))
	}, func(g *guard) {
		stream, _ := g.patrol.Watch(reauthtest.WithToken(m.sign(claims(nil))), "namespaces/c1/configmaps")
		time.Sleep(10 * time.Minute)
		g.patrol.Expect(stream, true, "")
		if tokens, accesses := g.CountReviews(); tokens != 0 || accesses != 0 {
			t.Errorf("%d token reviews, %d access reviews", tokens, accesses)
		}
		if len(stream.Calls()) != 0 {
			t.Errorf("it received %q", stream.Calls())
		}
		for check, sweep := range map[string]time.Duration{"credential": reauth.MinSweep / 2, "permission": reauth.MinSweep} {
			n := int(g.metric("spillway_reauthorizations_total", check, string(auth.Allowed)))
			if least := int(10 * time.Minute / sweep); n < least || n > 20*least {
				t.Errorf("%s: checked %d times", check, n)
			}
		}
	})
}

// Keys count while they are published: new ones soon, old ones no longer than any answer does,
// whatever tokens ask for.
func TestKeyRotation(t *testing.T) {
	onMint(t, TokensUnbound, func(g *guard, m *tokenSigner) {
		next := newMint(t, "k2", jose.ES256)
		old, fresh := m.sign(claims(nil)), next.sign(claims(nil))
		g.shows("old", old, auth.Authenticated, 0)
		for range 100 {
			g.shows("not published", next.sign(claims(nil)), auth.Refused, 1)
		}
		g.registry.publish(m.public(), next.public())
		if n := g.counted(g.reads, keysDocument); n != 1 {
			t.Errorf("fetched %d times", n)
		}
		time.Sleep(proofInterval)
		g.shows("old", old, auth.Authenticated, 0)
		g.shows("fresh", fresh, auth.Authenticated, 0)
		g.registry.publish(next.public())
		time.Sleep(proofInterval)
		g.shows("withdrawn", old, auth.Refused, 1)
		g.shows("fresh", fresh, auth.Authenticated, 0)
		impostor := newMint(t, "k2", jose.ES256) // the same name, another key
		g.registry.publish(impostor.public())
		time.Sleep(proofInterval)
		g.shows("replaced", fresh, auth.Refused, 1)
		g.registry.publish(next.public(), impostor.public()) // two of one name are none
		time.Sleep(auth.AnswerTTL)
		g.shows("ambiguous", fresh, auth.Refused, 1)
		g.registry.publish(next.public())
		time.Sleep(auth.AnswerTTL)
		g.shows("fresh", fresh, auth.Authenticated, 0)
		g.do(func() { delete(g.documents, keysDocument) })
		time.Sleep(auth.AnswerTTL)
		g.shows("nothing published", fresh, auth.Refused, 1)
		g.registry.publish(next.public())
		g.do(func() { g.documents[issuerDocument] = `{"issuer":"https://elsewhere"}` })
		time.Sleep(auth.AnswerTTL)
		g.shows("issuer changed", fresh, auth.Refused, 1)
	})
}

// Keys that are not for this are none: secret ones, private ones, ones for encryption, ones without
// a name.
func TestParseKeys(t *testing.T) {
	m := newMint(t, "k1", jose.ES256)
	good := m.public()
	marshal := func(k jose.JSONWebKey) string {
		raw, err := k.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	unnamed, encrypts, private := good, good, good
	unnamed.KeyID, encrypts.Use, private.Key = "", "enc", m.key
	for text, want := range map[string]int{
		"": 0, "{}": 0, `{"keys":5}`: 0, `{"keys":[5,null,{}]}`: 0,
		`{"keys":[` + marshal(good) + `]}`: 1, `{"keys":[{"kty":"new"},` + marshal(good) + `]}`: 1,
		`{"keys":[` + marshal(good) + `,` + marshal(good) + `]}`: 0, `{"keys":[` + marshal(good) + `,` + marshal(good) + `,` +
			marshal(good) + `]}`: 0,
		`{"keys":[` + marshal(unnamed) + `]}`: 0, `{"keys":[` + marshal(encrypts) + `]}`: 0, `{"keys":[` + marshal(private) +
			`]}`: 0,
		`{"keys":[{"kty":"oct","kid":"k1","k":"c2VjcmV0"}]}`: 0,
	} {
		if got := parseKeys([]byte(text)); len(got) != want {
			t.Errorf("%s: %d keys, want %d", text, len(got), want)
		}
	}
}

// Once upstream refuses a token that was accepted locally, or names another user for it, upstream
// reviews every token.
func TestLocalTokensDisagreement(t *testing.T) {
	onMint(t, TokensUnbound, func(g *guard, m *tokenSigner) {
		time.Sleep(time.Minute)
		g.checkEverything()
		token := m.sign(claims(nil))
		g.shows("at first", token, auth.Authenticated, 0)
		time.Sleep(2 * auth.AnswerTTL)
		g.shows("after upstream refused it", token, auth.Refused, 1)
		if g.metric("spillway_local_decisions_enabled", "token") != 0 ||
			g.metric("spillway_local_decision_disagreements_total",
				"token") != 1 {
			t.Error("no metric tells of it")
		}
		g.shows("another", m.sign(claims(map[string]any{"jti": "id-2"})), auth.Refused, 1)
	})
}

// FuzzLocalTokens tries to be taken with bytes of its own.
func FuzzLocalTokens(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	keys := keySet{issuer: testIssuer, keys: map[string]*jose.JSONWebKey{"k1": {Key: key.Public(), KeyID: "k1"}}}
	l := &localTokens{audiences: []string{"api"}}
	for _, head := range []string{`{"alg":"ES256","kid":"k1"}`, `{"alg":"none","kid":"k1"}`,
		`{"alg":"HS256","kid":"k1"}`} {
		raw, err := json.Marshal(claims(inPod))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + base64.RawURLEncoding.EncodeToString(raw) + "." +
			strings.Repeat("A", 86))
	}
	f.Fuzz(func(t *testing.T, token string) {
		if taken := l.verify(token, keys); taken != nil {
			t.Errorf("%q was taken for %s", token, taken.user.Name())
		}
	})
}
