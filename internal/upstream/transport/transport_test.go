package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"spillway/internal/testutil"
)

// What passes through is what the client sent: no credentials of ours, no compression of ours.
func TestTransports(t *testing.T) {
	type seen struct {
		authorization, agent, encoding string
		proto, certificates            int
	}
	const compressed = "what stands for gzip's bytes"
	var last seen
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = seen{r.Header.Get("Authorization"), r.Header.Get("User-Agent"), r.Header.Get("Accept-Encoding"),
			r.ProtoMajor, 0}
		if r.TLS != nil {
			last.certificates = len(r.TLS.PeerCertificates)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte(compressed))
	})
	secure := httptest.NewUnstartedServer(handler)
	secure.EnableHTTP2 = true
	secure.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(handler)
	defer plain.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})

	makers := map[string]func(*Factory) (http.RoundTripper, error){
		"bare":          func(f *Factory) (http.RoundTripper, error) { return f.Bare(Passing) },
		"bare HTTP/1.1": func(f *Factory) (http.RoundTripper, error) { return f.Bare(PassingHTTP1) },
		"bare fresh":    func(f *Factory) (http.RoundTripper, error) { return f.Bare(PassingFresh) },
		"own":           func(f *Factory) (http.RoundTripper, error) { return f.Own(Passing) },
		"own HTTP/1.1":  func(f *Factory) (http.RoundTripper, error) { return f.Own(PassingHTTP1) },
		"own fresh":     func(f *Factory) (http.RoundTripper, error) { return f.Own(PassingFresh) },
	}
	f := func(name string, cfg *rest.Config, want seen) {
		t.Helper()
		cfg.BearerToken, cfg.UserAgent = "ours", "spillway/v1"
		rt, err := makers[name](factoryOf(t, cfg))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer utilnet.CloseIdleConnectionsFor(rt)
		req, err := http.NewRequestWithContext(deadline(t), http.MethodGet, cfg.Host+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", "kubectl/v1")
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != compressed || resp.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: the body did not pass untouched: %q, %v", name, body, err)
		}
		if last != want {
			t.Errorf("%s: upstream saw %+v, want %+v", name, last, want)
		}
	}
	tlsConfig := func() *rest.Config {
		return &rest.Config{Host: secure.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	}
	plainConfig := func() *rest.Config { return &rest.Config{Host: plain.URL} }
	f("bare", tlsConfig(), seen{agent: "kubectl/v1", proto: 2})
	f("bare HTTP/1.1", tlsConfig(), seen{agent: "kubectl/v1", proto: 1})
	f("bare fresh", tlsConfig(), seen{agent: "kubectl/v1", proto: 2})
	f("own fresh", tlsConfig(), seen{authorization: "Bearer ours", agent: "kubectl/v1", proto: 2})
	f("own", tlsConfig(), seen{authorization: "Bearer ours", agent: "kubectl/v1", proto: 2})
	f("own HTTP/1.1", tlsConfig(), seen{authorization: "Bearer ours", agent: "kubectl/v1", proto: 1})
	f("bare", plainConfig(), seen{agent: "kubectl/v1", proto: 1})
	f("bare fresh", plainConfig(), seen{agent: "kubectl/v1", proto: 1})
	f("own fresh", plainConfig(), seen{authorization: "Bearer ours", agent: "kubectl/v1", proto: 1})
	f("own", plainConfig(), seen{authorization: "Bearer ours", agent: "kubectl/v1", proto: 1})

	// A client certificate in the kubeconfig is ours too.
	certificate := tlsConfig()
	certificate.CertData, certificate.KeyData = keyPair(t)
	f("bare", certificate, seen{agent: "kubectl/v1", proto: 2})
	f("own", certificate, seen{authorization: "Bearer ours", agent: "kubectl/v1", proto: 2, certificates: 1})
	f("bare fresh", certificate, seen{agent: "kubectl/v1", proto: 2})
	f("own fresh", certificate, seen{authorization: "Bearer ours", agent: "kubectl/v1", proto: 2, certificates: 1})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var deadline = testutil.Deadline

// factoryOf makes the transports of a configuration that came from no file.
func factoryOf(t *testing.T, cfg *rest.Config) *Factory {
	t.Helper()
	f, err := New(ConfigSource{Config: cfg}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// keyPair is a self-signed client certificate.
func keyPair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

// An answer whose head is larger than any has use for is no answer, over either version.
func TestHeadsOfAnswersAreBounded(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range map[string]int{"/large": 9, "/huge": 11}[r.URL.Path] {
			w.Header().Add("Long", strings.Repeat("a", 100_000))
		}
	}))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	factory, err := New(ConfigSource{Config: &rest.Config{Host: secure.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]Purpose{
		"passing": Passing, "HTTP/1.1": PassingHTTP1, "fresh": PassingFresh, "mirrors": Mirrors,
	} {
		rt, err := factory.Bare(kind)
		if err != nil {
			t.Fatal(err)
		}
		defer utilnet.CloseIdleConnectionsFor(rt)
		for path, fails := range map[string]bool{"/large": false, "/huge": true} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, secure.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := rt.RoundTrip(r)
			if (err != nil) != fails {
				t.Errorf("%s, %s: %v", name, path, err)
			}
			if err == nil {
				_ = response.Body.Close()
			}
		}
	}
}
