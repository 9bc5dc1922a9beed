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
	"path"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// frontPath is where the API server is on a host that has other things, too.
const frontPath = "/k8s/clusters/c-1"

// pathFront is a front that reads paths as it likes: decoded as often as there is something to
// decode, backslashes as slashes, then cleaned. What is below frontPath is the API server's, and
// the rest its own.
type pathFront struct {
	url string
	ca  []byte

	mu     sync.Mutex
	astray []string // what was requested of the front itself, and with which credentials
}

func newPathFront(t *testing.T, c *authcluster.Cluster) *pathFront {
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
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(upstream)
			p.Out.URL.Path, p.Out.URL.RawPath = strings.TrimPrefix(p.In.URL.Path, frontPath), ""
		},
	}
	f := &pathFront{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := r.URL.EscapedPath()
		for next, err := url.PathUnescape(read); err == nil && next != read; next, err = url.PathUnescape(read) {
			read = next
		}
		if read = path.Clean(strings.ReplaceAll(read, `\`, "/")); read == frontPath ||
			strings.HasPrefix(read, frontPath+"/") {
			proxy.ServeHTTP(w, r)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.astray = append(f.astray, r.RequestURI+" by "+r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, canary)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	f.url, f.ca = server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return f
}

// kubeconfig is that of a user behind the front.
func (f *pathFront) kubeconfig(t *testing.T, c *authcluster.Cluster, u controlplane.User) string {
	t.Helper()
	file := c.Kubeconfig(u + "-fronted")
	config := &rest.Config{Host: f.url + frontPath, BearerToken: c.Config(u).BearerToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: f.ca}}
	if err := controlplane.WriteKubeconfig(file, config); err != nil {
		t.Fatal(err)
	}
	return file
}

// lentCredentials requests, without credentials of its own, by an impersonator and by the proxy
// itself, places outside of the API server's path; and what is there, which is served as ever.
func (w *world) lentCredentials(t *testing.T) {
	t.Parallel()
	mallory := w.Certified(t, "mallory")
	w.Grant(
		t,
		w.User("impersonator"),
		authcluster.Everywhere(authcluster.Rule("impersonate", "", "users,groups,serviceaccounts"),
			authcluster.Rule("impersonate", "authentication.k8s.io", "*")),
	)
	w.Settle(t)
	front := newPathFront(t, w.Cluster)
	flags := append(
		w.ProxyFlags(),
		"--resources=configmaps",
		"--kubeconfig="+front.kubeconfig(t, w.Cluster, authcluster.Self),
	)
	lender := process.StartProxy(t, w.binary,
		append(flags, "--impersonate-client-certs",
			"--impersonation-kubeconfig="+front.kubeconfig(t, w.Cluster, "impersonator"))...)
	self := process.StartProxy(t, w.binary, append(flags, "--listen=127.0.0.1:0", "--listen-identity=self")...)
	anonymous := authcluster.Anonymous()
	for _, way := range []struct {
		name string
		to   wire.Address
		by   authcluster.User
	}{{"impersonator", authcluster.Through(lender, mallory), mallory}, {"self", authcluster.Plainly(self), anonymous}} {
		ask := func(target string) (int, string) {
			t.Helper()
			a, _, err := getUntil(t.Context(), way.to, way.by, target, nil)
			if err != nil {
				t.Fatalf("%s, %s: %v", way.name, target, err)
			}
			return a.Status, string(a.Body)
		}
		if code, body := ask("/version"); code != http.StatusOK || !strings.Contains(body, "gitVersion") {
			t.Fatalf("%s: /version: %d %s", way.name, code, body)
		}
		for _, target := range []string{
			"/../../../v3/secrets", "/api/../../../../v3/secrets", "/%2e%2e/%2e%2e/%2e%2e/v3", "/..%2f..%2f..%2fv3",
			"/%252e%252e/..%252f..%252fv3",
			`/..\..\..\v3`, "/..%5c..%5c..%5cv3", "/%25252e./../..%25255cv3",
			"/api/v1/namespaces/red/configmaps/../../../../../../../../v3?watch=1",
		} {
			if code, body := ask(target); code != http.StatusBadRequest || strings.Contains(body, canary) {
				t.Errorf("%s: %s: %d %s", way.name, target, code, body)
			}
		}
	}
	front.mu.Lock()
	defer front.mu.Unlock()
	if len(front.astray) > 0 {
		t.Errorf("the front itself was asked: %q", front.astray)
	}
}
