package failclosed

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
)

// fault is what becomes of reviews on their way to upstream, and of nothing else.
type fault struct {
	name  string
	group string // of the API whose requests it concerns
	serve http.HandlerFunc
}

const (
	tokenReviews  = "/apis/authentication.k8s.io/"
	accessReviews = "/apis/authorization.k8s.io/"
)

// faults are those that each sort of review has.
func faults(group string) []fault {
	say := func(code int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const failure = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"etcd",` +
		`"reason":"InternalError","code":500}`
	review := map[string]string{tokenReviews: "TokenReview", accessReviews: "SubjectAccessReview"}[group]
	version := strings.TrimPrefix(group, "/apis/") + "v1"
	said := func(status string) string {
		return `{"kind":"` + review + `","apiVersion":"` + version + `","status":` + status + `}`
	}
	all := []fault{
		{"500", group, say(http.StatusInternalServerError, "application/json", failure)},
		{"429", group, say(http.StatusTooManyRequests, "text/plain", "Too many requests, please try again later.\n")},
		{"slow", group, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"cut", group, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"no review", group, say(http.StatusCreated, "application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Success"}`)},
		{"nothing", group, say(http.StatusCreated, "application/json", "")},
		{"half of it", group, say(http.StatusCreated, "application/json",
			said(`{"allowed":true,"authenticated":true,"user":{"username":"admin","groups":["system:masters"]}}`)[:120])},
		{"an error besides", group,
			say(http.StatusCreated, "application/json",
				said(`{"allowed":false,"authenticated":false,"evaluationError":"x","error":"x"}`))},
	}
	if group == tokenReviews {
		all = append(all, fault{"nobody", group,
			say(http.StatusCreated, "application/json", said(`{"authenticated":true,"user":{}}`))})
	}
	return all
}

// upstreamProxy stands between Spillway and upstream.
type upstreamProxy struct {
	url   string
	ca    []byte
	fault atomic.Pointer[fault] // nil: none
}

func newRelay(t *testing.T, c *authcluster.Cluster) *upstreamProxy {
	t.Helper()
	upstream, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true,
		MaxIdleConnsPerHost: 64}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // clients that leave
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(upstream) },
	}
	r := &upstreamProxy{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if f := r.fault.Load(); f != nil && strings.HasPrefix(request.URL.Path, f.group) &&
			request.Method == http.MethodPost {
			f.serve(w, request)
			return
		}
		proxy.ServeHTTP(w, request)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections() // watches last
		server.Close()
		transport.CloseIdleConnections()
	})
	r.url = server.URL
	r.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return r
}

// flags are those of a proxy behind the upstreamProxy.
func (r *upstreamProxy) flags(t *testing.T, c *authcluster.Cluster, more ...string) []string {
	t.Helper()
	self := &rest.Config{Host: r.url, BearerToken: c.Config(authcluster.Self).BearerToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: r.ca}}
	file := c.Kubeconfig(controlplane.User("relayed-" + self.Host[len("https://127.0.0.1:"):]))
	if err := controlplane.WriteKubeconfig(file, self); err != nil {
		t.Fatal(err)
	}
	return append(append(c.ProxyFlags(), "--kubeconfig="+file), more...)
}
