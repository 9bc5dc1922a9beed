// Package relay stands between Spillway and an API server and makes answers late: by a time, out of
// order between connections, or never. A callback decides for each request.
//
// Invariant: apart from when they come, answers are the API server's own, and a request that is not
// late passes at once.
package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// Relay is a server that passes requests on to one API server. It ends with the test.
type Relay struct {
	Config *rest.Config // reaches the API server through the relay, with the same credentials
	late   atomic.Int64
}

// Late is how many requests and runs of bytes were held up.
func (r *Relay) Late() int64 { return r.late.Load() }

// Lateness is how late the answer to one request comes. The zero value is an answer at once.
type Lateness struct {
	Before time.Duration        // from the request's arrival until the API server gets it
	After  time.Duration        // from the API server's head until the client gets it
	Runs   func() time.Duration // how late the next run of bytes of the body is; nil: not at all
	Never  bool                 // there is no answer: the request is held until its client gives up
}

// New starts a relay to the API server of config. lateness is called for each request, by several
// goroutines.
func New(t *testing.T, config *rest.Config, lateness func(*http.Request) Lateness) *Relay {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true, MaxIdleConnsPerHost: 256,
	}
	r := &Relay{}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // clients that leave
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = target.Scheme, target.Host, ""
			p.Out.URL.RawQuery = p.In.URL.RawQuery // which would be repaired
		},
		ModifyResponse: r.answered,
	}
	server := httptest.NewUnstartedServer(r.handler(proxy, lateness))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections() // watches last
		server.Close()
		transport.CloseIdleConnections()
	})
	r.Config = rest.CopyConfig(config)
	r.Config.Host = server.URL
	r.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return r
}

// Kubeconfig is a file by which a program reaches the API server through the relay.
func (r *Relay) Kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay.kubeconfig")
	if err := controlplane.WriteKubeconfig(path, r.Config); err != nil {
		t.Fatal(err)
	}
	return path
}

// handler holds a request up as long as lateness says, and leaves what concerns the answer to
// answered.
func (r *Relay) handler(next http.Handler, lateness func(*http.Request) Lateness) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		late := lateness(request)
		if late.Before > 0 || late.After > 0 || late.Never {
			r.late.Add(1)
		}
		if late.Never {
			<-request.Context().Done()
			return
		}
		if wait(request.Context(), late.Before) {
			next.ServeHTTP(w, request.WithContext(context.WithValue(request.Context(), latenessKey{}, late)))
		}
	})
}

// latenessKey is the key of a request's Lateness in its context.
type latenessKey struct{}

// answered holds an answer up, and the bytes of its body.
func (r *Relay) answered(response *http.Response) error {
	ctx := response.Request.Context()
	late := ctx.Value(latenessKey{}).(Lateness)
	if !wait(ctx, late.After) {
		return context.Cause(ctx)
	}
	if late.Runs != nil && response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = r.delayed(response.Body, late.Runs)
	}
	return nil
}

// wait returns after a time, and false if the client gives up first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
