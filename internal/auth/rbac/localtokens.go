package rbac

import (
	"slices"
	"strings"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	josejwt "github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
)

// localTokens finds tokens of service accounts valid by what is known here. A signature says which
// account upstream once gave a token, and until when. Whether that service account still exists,
// and the pod that the token is bound to, is looked up in tables. Only when the keys, the service
// accounts and, for a bound token, the pods are proven is a token accepted: at a moment within the
// last auth.AnswerTTL, upstream accepted it as well.
//
// It never refuses a token. What it does not accept is for upstream to judge: a token of another
// kind, one that is bound to anything else, and one with a claim that it does not understand.
type localTokens struct {
	// Static after construction.
	authorizer *LocalAuthorizer
	audiences  []string
	clock      clock.PassiveClock
	began      time.Time // by both clocks, see auth.DetectSetBack

	mu       sync.Mutex
	verified *auth.AnswerCache[*accountToken] // so that a signature is verified once
}

// accountToken is a token of a service account whose signature has been verified. Immutable.
type accountToken struct {
	signedBy       *jose.JSONWebKey
	issuer         string
	account        objectName
	accountUID     string
	pod, podUID    string // empty: bound to none
	user           *auth.Identity
	begins, issued time.Time
	expires        time.Time
}

// tokenBytesLimit bounds the tokens that are looked at, and so the work that a made-up one causes.
// Upstream judges longer ones.
const tokenBytesLimit = 16 << 10

// Tokens implements auth.LocalDecider. limit bounds the tokens whose signatures are remembered.
func (r *LocalAuthorizer) Tokens(audiences []string, limit int,
	review auth.ReviewFunc[auth.Secret, auth.TokenVerdict]) auth.DecideFunc[auth.Secret, auth.TokenVerdict] {
	if r.opts.Tokens == TokensNone {
		return nil
	}
	l := &localTokens{authorizer: r, audiences: audiences, clock: r.clock, began: r.clock.Now(),
		verified: auth.NewAnswerCache[*accountToken](limit)}
	return newCheckedDecider(r, deciderOptions[auth.Secret, auth.TokenVerdict]{
		kind: reviewOfToken, decide: l.decide, awaitsProof: func(auth.Secret) bool { return false }, review: review,
		agrees: func(here, there auth.TokenVerdict) bool {
			return there.Identity != nil && here.Identity.Equal(there.Identity)
		},
	}).decideChecked
}

// decide accepts a token, if it can.
func (l *localTokens) decide(digest auth.Digest, token auth.Secret) (auth.Answer[auth.TokenVerdict], bool) {
	l.authorizer.mu.RLock()
	keys := l.authorizer.keys
	l.authorizer.mu.RUnlock()
	if !l.authorizer.isRecent(keys.proven) {
		return auth.Answer[auth.TokenVerdict]{}, false
	}
	t := l.recall(digest, keys)
	if t == nil {
		if t = l.verify(token.Reveal(), keys); t == nil {
			return auth.Answer[auth.TokenVerdict]{}, false
		}
		l.note(digest, t)
	}
	if !l.isInForce(t) {
		return auth.Answer[auth.TokenVerdict]{}, false
	}
	at, ok := l.authorizer.proveExists(t)
	if keys.proven.Before(at) {
		at = keys.proven
	}
	return auth.Answer[auth.TokenVerdict]{Value: auth.TokenVerdict{Identity: t.user, Expires: t.expires}, At: at}, ok
}

// recall is a token that was verified by one of the keys; nil: it was not. Keys are compared as
// pointers: fetchKeys keeps the pointer of an unchanged key.
func (l *localTokens) recall(digest auth.Digest, keys keySet) *accountToken {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.verified.Recall(digest, l.clock.Now())
	if !ok || known.Value.issuer != keys.issuer || keys.keys[known.Value.signedBy.KeyID] != known.Value.signedBy {
		return nil
	}
	return known.Value
}

// note remembers a token whose signature has been verified, until the token ends.
func (l *localTokens) note(digest auth.Digest, t *accountToken) {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verified.Note(digest, auth.Answer[*accountToken]{Value: t, At: now}, auth.MonotonicEnd(t.expires, now), now)
}

// isInForce reports that a token has begun and not ended.
func (l *localTokens) isInForce(t *accountToken) bool {
	now := l.clock.Now()
	otherwise, isSetBack := auth.DetectSetBack(l.began, now)
	hasEnded := !now.Before(t.expires) || isSetBack && !otherwise.Before(t.expires)
	return !hasEnded && !now.Before(t.begins) && !now.Before(t.issued)
}

// proveExists returns when it was proven that what a token is bound to exists; false: it is not
// proven. That a service account and a pod existed together need not be shown, unlike for a role
// and its binding (tables.togetherLocked). An object of a uid comes once and goes once, and both
// existed when upstream signed the token.
func (r *LocalAuthorizer) proveExists(t *accountToken) (time.Time, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	deciding := []*PermissionTable{r.accounts}
	if t.pod != "" {
		if r.pods == nil {
			return time.Time{}, false
		}
		deciding = append(deciding, r.pods)
	}
	at, ok := r.provenLocked(deciding...)
	exists := func(table *PermissionTable, name, uid string) bool {
		found, ok := table.entries[t.account.namespace+"/"+name].fact.(presence)
		return ok && found.uid == uid && !found.isEnding
	}
	return at, ok && exists(r.accounts, t.account.name, t.accountUID) && (t.pod == "" || exists(r.pods, t.pod, t.podUID))
}

// verify reads a token and verifies its signature; nil: it is not accepted here.
func (l *localTokens) verify(token string, keys keySet) *accountToken {
	if len(token) > tokenBytesLimit || !isCompact(token) {
		return nil
	}
	parsed, err := josejwt.ParseSigned(token, signatureAlgorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil
	}
	head := parsed.Headers[0]
	key := keys.keys[head.KeyID]
	if head.KeyID == "" || key == nil || key.Algorithm != "" && key.Algorithm != head.Algorithm {
		return nil
	}
	var public josejwt.Claims
	var private struct {
		Kubernetes map[string]any `json:"kubernetes.io"`
	}
	// Claims verifies the signature by key, and reads nothing if that fails.
	if parsed.Claims(key, &public, &private) != nil || public.Issuer != keys.issuer || public.Expiry == nil ||
		!slices.ContainsFunc(l.audiences, func(a string) bool { return public.Audience.Contains(a) }) {
		return nil
	}
	t := &accountToken{
		signedBy: key, issuer: keys.issuer,
		begins: public.NotBefore.Time(), issued: public.IssuedAt.Time(), expires: public.Expiry.Time(),
	}
	user := authenticationv1.UserInfo{Extra: map[string]authenticationv1.ExtraValue{}}
	if !t.bind(private.Kubernetes, &user) || public.Subject != serviceAccountName(t.account.namespace, t.account.name) {
		return nil
	}
	if public.ID != "" {
		user.Extra[auth.CredentialIDExtra] = authenticationv1.ExtraValue{"JTI=" + public.ID}
	}
	user.Username = public.Subject
	// Decoding JSON replaces a byte that is not UTF-8, so that this may be the name of another user.
	if t.user = auth.NewIdentity(user); t.user.HasReplacementCharacter() {
		return nil
	}
	return t
}

// isCompact reports that a token is three parts in the letters of base64url and nothing else: not
// even what decoders overlook, such as the ends of lines.
func isCompact(token string) bool {
	return strings.Count(token, ".") == 2 && !strings.ContainsFunc(token, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	})
}

// bind reads what a token is bound to, and with it the user that it proves, as kube-apiserver does.
// It accepts a service account alone, or with a pod, or with a pod and its node. Others are a
// Secret, a node alone, a webhook's configuration, and what a later version may add.
func (t *accountToken) bind(claims map[string]any, user *authenticationv1.UserInfo) bool {
	refs := map[string]objectRef{}
	namespace := ""
	for name, value := range claims {
		switch name {
		case "namespace":
			namespace, _ = value.(string)
		case "serviceaccount", "pod", "node":
			ref, ok := refOf(value)
			if !ok {
				return false
			}
			refs[name] = ref
		case "warnafter": // counts tokens that are due to be replaced
		default:
			return false
		}
	}
	account, isAccount := refs["serviceaccount"]
	pod, hasPod := refs["pod"]
	node, hasNode := refs["node"]
	if namespace == "" || !isAccount || hasNode && !hasPod {
		return false
	}
	t.account, t.accountUID, t.pod, t.podUID = objectName{namespace, account.name}, account.uid, pod.name, pod.uid
	user.UID, user.Groups = account.uid, []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	if hasPod {
		user.Extra["authentication.kubernetes.io/pod-name"] = authenticationv1.ExtraValue{pod.name}
		user.Extra[podUIDExtra] = authenticationv1.ExtraValue{pod.uid}
	}
	if hasNode {
		user.Extra["authentication.kubernetes.io/node-name"] = authenticationv1.ExtraValue{node.name}
		user.Extra["authentication.kubernetes.io/node-uid"] = authenticationv1.ExtraValue{node.uid}
	}
	return true
}

// objectRef is an object that a token is bound to.
type objectRef struct{ name, uid string }

// refOf reads an object that a token is bound to. It reports false unless that is a name and a uid,
// and no more.
func refOf(value any) (objectRef, bool) {
	members, _ := value.(map[string]any)
	name, _ := members["name"].(string)
	uid, _ := members["uid"].(string)
	return objectRef{name, uid}, name != "" && uid != "" && len(members) == 2
}
