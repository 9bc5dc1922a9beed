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

// localTokens finds tokens of service accounts good by what is known here. A signature says which
// account upstream once gave a token, and until when; whether that service account, and the pod
// that the token is bound to, are still there is looked up in tables. Only when all three (keys,
// service accounts, pods) are proven is a token taken, and then upstream would take it as well.
//
// It never refuses one. What it does not take is for upstream to judge: any other token, one that
// is bound to anything else, and one of which it does not understand every word that kube-apiserver
// may have put in.
type localTokens struct {
	// Static after construction.
	rights    *LocalAuthorizer
	audiences []string
	clock     clock.PassiveClock
	began     time.Time

	mu       sync.Mutex
	verified *auth.AnswerCache[*accountToken] // so that a signature is verified once
}

// accountToken is a token of a service account whose signature has been verified. Immutable.
type accountToken struct {
	signedBy       *jose.JSONWebKey
	kid, issuer    string
	account        objectName
	accountUID     string
	pod, podUID    string // empty: bound to none
	who            *auth.Identity
	begins, issued time.Time
	expires        time.Time
}

// maxLocalToken bounds what is looked at, in bytes; kube-apiserver's own are shorter than 2 KiB.
const maxLocalToken = 16 << 10

// Tokens implements auth.LocalDecider.
func (r *LocalAuthorizer) Tokens(audiences []string, remembered int,
	review auth.ReviewFunc[auth.Secret, auth.TokenVerdict]) auth.DecideFunc[auth.Secret, auth.TokenVerdict] {
	if r.keys == nil {
		return nil
	}
	l := &localTokens{rights: r, audiences: audiences, clock: r.clock, began: r.clock.Now(),
		verified: auth.NewAnswerCache[*accountToken](remembered)}
	return newLocal(reviewOfToken, r, review, l.answer, func(here, there auth.TokenVerdict) bool {
		return there.Identity != nil && here.Identity.Equal(there.Identity)
	}).ask
}

// answer takes a token, if it can.
func (l *localTokens) answer(key auth.Digest, token auth.Secret) (auth.Answer[auth.TokenVerdict], bool) {
	r := l.rights
	r.mu.RLock()
	issuer, keys, proven := r.keys.issuer, r.keys.keys, r.keys.proven // keys are replaced, never changed
	r.mu.RUnlock()
	if !r.counts(proven) {
		return auth.Answer[auth.TokenVerdict]{}, false
	}
	t := l.recall(key, issuer, keys)
	if t == nil {
		if t = l.read(token.Reveal(), issuer, keys); t == nil {
			return auth.Answer[auth.TokenVerdict]{}, false
		}
		l.note(key, t)
	}
	now := l.clock.Now()
	later, back := auth.DetectSetBack(l.began, now)
	if !now.Before(t.expires) || back && !later.Before(t.expires) || now.Before(t.begins) || now.Before(t.issued) {
		return auth.Answer[auth.TokenVerdict]{}, false
	}
	at, ok := r.exists(t)
	if proven.Before(at) {
		at = proven
	}
	return auth.Answer[auth.TokenVerdict]{Value: auth.TokenVerdict{Identity: t.who, Expires: t.expires}, At: at}, ok
}

func (l *localTokens) recall(key auth.Digest, issuer string, keys map[string]*jose.JSONWebKey) *accountToken {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.verified.Recall(key, l.clock.Now())
	if !ok || known.Value.issuer != issuer || keys[known.Value.kid] != known.Value.signedBy {
		return nil
	}
	return known.Value
}

func (l *localTokens) note(key auth.Digest, t *accountToken) {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verified.Note(key, auth.Answer[*accountToken]{Value: t, At: now}, auth.MonotonicEnd(t.expires, now), now)
}

// exists reports that what a token is bound to is there, and since when that is known. That a
// service account and a pod were there at one moment need not be shown, as for a role and its
// binding (tables.togetherLocked): an object of a uid comes once and goes once, and both were there
// when upstream signed the token.
func (r *LocalAuthorizer) exists(t *accountToken) (time.Time, bool) {
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
	there := func(table *PermissionTable, name, uid string) bool {
		found, ok := table.entries[t.account.namespace+"/"+name].fact.(existing)
		return ok && found.uid == uid && !found.ending
	}
	return at, ok && there(r.accounts, t.account.name, t.accountUID) && (t.pod == "" || there(r.pods, t.pod, t.podUID))
}

// read verifies a token; nil: it is not one that is taken here.
func (l *localTokens) read(token, issuer string, keys map[string]*jose.JSONWebKey) *accountToken {
	if len(token) > maxLocalToken || !isCompact(token) {
		return nil
	}
	parsed, err := josejwt.ParseSigned(token, signatures)
	if err != nil || len(parsed.Headers) != 1 {
		return nil
	}
	head := parsed.Headers[0]
	key := keys[head.KeyID]
	if head.KeyID == "" || key == nil || key.Algorithm != "" && key.Algorithm != head.Algorithm {
		return nil
	}
	var public josejwt.Claims
	var private struct {
		Kubernetes map[string]any `json:"kubernetes.io"`
	}
	if parsed.Claims(key, &public, &private) != nil || public.Issuer != issuer || public.Expiry == nil ||
		!slices.ContainsFunc(l.audiences, func(a string) bool { return public.Audience.Contains(a) }) {
		return nil
	}
	t := &accountToken{
		signedBy: key, kid: head.KeyID, issuer: issuer,
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
	if t.who = auth.NewIdentity(user); t.who.HasReplacementCharacter() {
		return nil
	}
	return t
}

// isCompact reports that a token is three parts of base64url and nothing else: not even what
// decoders overlook.
func isCompact(token string) bool {
	return strings.Count(token, ".") == 2 && !strings.ContainsFunc(token, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	})
}

// bind reads what a token is bound to, and with it the user that it proves, as kube-apiserver does.
// It reports false for anything else than a service account, or one and a pod with the node that it
// was on: a Secret, a node alone, a webhook's configuration, and whatever a later version may add.
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

func refOf(value any) (objectRef, bool) {
	members, _ := value.(map[string]any)
	name, _ := members["name"].(string)
	uid, _ := members["uid"].(string)
	return objectRef{name, uid}, name != "" && uid != "" && len(members) == 2
}
