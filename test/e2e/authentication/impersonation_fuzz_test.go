package authentication

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"spillway/internal/auth"
)

// allowAll allows everything. Where it is not constrained, it allows only impersonation of old.
type allowAll struct{ constrained bool }

// Authorize implements authorizer.Authorizer.
func (p allowAll) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !p.constrained && a.GetVerb() != "impersonate" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// impersonated is kube-apiserver's own reading of impersonation, behind a server for HTTP/1.1 and
// HTTP/2.
type impersonated struct {
	server       *httptest.Server
	arrived      chan user.Info
	http1, http2 *http.Transport
}

func newImpersonated(tb testing.TB) *impersonated {
	i := &impersonated{arrived: make(chan user.Info, 1)}
	last := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		who, _ := request.UserFrom(r.Context())
		i.arrived <- who
	})
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	mux := http.NewServeMux()
	for path, filter := range map[string]http.Handler{
		"/old":    impersonation.WithImpersonation(last, allowAll{}, codecs),
		"/legacy": impersonation.WithConstrainedImpersonation(last, allowAll{}, codecs),
		"/new":    impersonation.WithConstrainedImpersonation(last, allowAll{constrained: true}, codecs),
	} {
		mux.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: "lender"})
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "get",
				APIVersion: "v1", Resource: "pods"})
			filter.ServeHTTP(w, r.WithContext(ctx))
		}))
	}
	i.server = httptest.NewUnstartedServer(mux)
	i.server.EnableHTTP2 = true
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.StartTLS()
	transport := func(two bool) *http.Transport {
		t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols)}
		t.Protocols.SetHTTP1(!two)
		t.Protocols.SetHTTP2(two)
		return t
	}
	i.http1, i.http2 = transport(false), transport(true)
	tb.Cleanup(func() {
		i.http1.CloseIdleConnections()
		i.http2.CloseIdleConnections()
		i.server.Close()
	})
	return i
}

// arrival is the user that a request of an impersonation reaches the API server's handlers as.
func (i *impersonated) arrival(as *auth.Impersonation, path string, through *http.Transport) (user.Info, error) {
	r, err := http.NewRequest(http.MethodGet, i.server.URL+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := as.Through(through).RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", response.Status, body)
	}
	if want := map[bool]int{false: 1, true: 2}[through == i.http2]; response.ProtoMajor != want {
		return nil, fmt.Errorf("answered in %s", response.Proto)
	}
	return <-i.arrived, nil
}

// changed reports that HTTP changes one of the values.
func changed(values ...string) bool {
	return slices.ContainsFunc(values, func(s string) bool {
		return strings.Trim(s, " \t") != s ||
			strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
	})
}

// FuzzImpersonation: an identity is refused, and that only where HTTP would change it, or
// kube-apiserver's own code reads the same identity out of a request, over HTTP/1.1 and over
// HTTP/2.
func FuzzImpersonation(f *testing.F) {
	for _, s := range []string{
		"a", "system:masters ", " a", "\ta", "a\t", "a\n", "a\r\nImpersonate-Group: system:masters", "\x00", "\x7f",
		"a\tb", "a  b", "", "\xff", "ä", "%41", "%", "A", "a/b",
		"system:authenticated", "system:unauthenticated", "system:anonymous", "system:serviceaccount:n:a",
		"system:serviceaccount:n:a:b", "system:node:n", "system:masters",
		"\u00a0a\u00a0", "\u0085", "\ufeff", "a,b", "a_b", "a-b", strings.Repeat("x", 5000),
	} {
		f.Add(s, "u", "g", "h", "k", "v", byte(0xff))
		f.Add("a", s, s, "h", s, s, byte(0xff))
		f.Add("a", "", "g", s, "K", "v", byte(1))
		f.Add(s, "", s, s, "", "", byte(0))
	}
	up := newImpersonated(f)
	f.Fuzz(func(t *testing.T, name, uid, group, other, key, value string, shape byte) {
		info := authenticationv1.UserInfo{Username: name, UID: uid, Extra: map[string]authenticationv1.ExtraValue{}}
		info.Groups = append(info.Groups, []string{group, other, group}[:shape&3]...)
		if shape&4 != 0 {
			info.Extra[key] = authenticationv1.ExtraValue{value, other}
		}
		if shape&8 != 0 {
			info.Extra[value] = authenticationv1.ExtraValue{uid}
		}
		who := auth.NewIdentity(info)
		if who == nil {
			if name != "" {
				t.Fatal("no identity")
			}
			return
		}
		want := who.UserInfo()
		as, err := auth.NewImpersonation(who)
		if err != nil {
			values := append([]string{name, uid}, info.Groups...)
			for _, v := range info.Extra {
				values = append(values, v...)
			}
			if !changed(values...) && name != user.Anonymous && len(strings.Join(values, "")) < 1<<18 {
				t.Fatalf("%q is refused: %v", want, err)
			}
			return
		}
		for _, path := range []string{"/old", "/legacy", "/new"} {
			for _, through := range []*http.Transport{up.http1, up.http2} {
				got, err := up.arrival(as, path, through)
				if err != nil {
					t.Fatalf("%q at %s: %v", want, path, err)
				}
				extra := map[string]authenticationv1.ExtraValue{}
				for k, v := range got.GetExtra() {
					extra[k] = v
				}
				arrived := authenticationv1.UserInfo{Username: got.GetName(), UID: got.GetUID(),
					Groups: got.GetGroups(), Extra: extra}
				if !reflect.DeepEqual(arrived, want) {
					t.Fatalf("at %s:\n sent %q\n came %q", path, want, arrived)
				}
			}
		}
	})
}
