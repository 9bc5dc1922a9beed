package transport

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs certificates in tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes a certificate for 127.0.0.1, or of a client.
func (a authority) issue(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
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

func serialOf(t *testing.T, certificate []byte) string {
	t.Helper()
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.SerialNumber.String()
}

// rotating is an upstream whose certificate can be exchanged, with the files of a client of it. It
// answers with the number of the connection, what it knows of the client, and how long its body is;
// at /watch it sends the lines that it is given.
type rotating struct {
	t      *testing.T
	server *httptest.Server
	shown  atomic.Pointer[tls.Certificate]
	conns  atomic.Int64
	refuse atomic.Bool // answers 401
	lines  chan string
	dir    string
}

type connKey struct{}

func newRotating(t *testing.T, ca authority) *rotating {
	t.Helper()
	r := &rotating{t: t, lines: make(chan string), dir: t.TempDir()}
	r.show(ca)
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.answer))
	r.server.EnableHTTP2 = true
	r.server.TLS = &tls.Config{
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.shown.Load(), nil },
	}
	r.server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, r.conns.Add(1))
	}
	r.server.Config.ErrorLog = nil
	r.server.StartTLS()
	r.server.TLS.Certificates = nil // httptest's own
	t.Cleanup(r.server.Close)
	return r
}

func (r *rotating) answer(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/watch" {
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case line := <-r.lines:
				_, _ = io.WriteString(w, line+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-req.Context().Done():
				return
			}
		}
	}
	body, _ := io.Copy(io.Discard, req.Body)
	if r.refuse.Load() {
		w.WriteHeader(http.StatusUnauthorized)
	}
	serial := ""
	if certificates := req.TLS.PeerCertificates; len(certificates) > 0 {
		serial = certificates[0].SerialNumber.String()
	}
	fmt.Fprintf(w, "%d|%s|%s|%d", req.Context().Value(connKey{}), req.Header.Get("Authorization"), serial, body)
}

// show has new connections shown another certificate.
func (r *rotating) show(ca authority) {
	r.t.Helper()
	pair, err := tls.X509KeyPair(ca.issue(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	r.shown.Store(&pair)
}

func (r *rotating) write(name string, text ...[]byte) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	var all []byte
	for _, part := range text {
		all = append(all, part...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// ask sends a request and returns the fields of the answer.
func (r *rotating) ask(rt http.RoundTripper, body io.Reader) ([]string, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(deadline(r.t), http.MethodPost, r.server.URL+"/", body)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return strings.Split(string(text), "|"), err
}

// transports are one of each kind, which are closed when the test ends.
func transports(t *testing.T, f *Factory) map[string]http.RoundTripper {
	t.Helper()
	all := map[string]http.RoundTripper{}
	for name, kind := range map[string]Purpose{"mirrors": Mirrors, "passing": Passing, "HTTP/1.1": PassingHTTP1,
		"fresh": PassingFresh} {
		bare, err := f.Bare(kind)
		if err != nil {
			t.Fatal(err)
		}
		own, err := f.Own(kind)
		if err != nil {
			t.Fatal(err)
		}
		all["bare "+name], all["own "+name] = bare, own
	}
	link, err := f.Links().Take()
	if err != nil {
		t.Fatal(err)
	}
	all["probes"] = link
	t.Cleanup(func() {
		f.shared.inUse.closeIdle()
		f.shared.look()
	})
	return all
}

// T1: the API server gets a certificate of another authority, and the file names that one. No
// request fails, even where nothing looked at the file in between, and whatever the request brings.
func TestEveryTransportTrustsWhatTheFileSaysNow(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	up := newRotating(t, first)
	ca := up.write("ca.crt", first.pem())
	f := factoryOf(t, &rest.Config{Host: up.server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}})
	all := transports(t, f)
	check := func(when string) {
		t.Helper()
		for name, rt := range all {
			for what, body := range map[string]io.Reader{"no body": nil, "a body": strings.NewReader("four")} {
				if got, err := up.ask(rt, body); err != nil || got[3] != map[string]string{"no body": "0", "a body": "4"}[what] {
					t.Errorf("%s, %s with %s: %v, %v", when, name, what, got, err)
				}
			}
		}
		for name, rt := range all { // what cannot be sent again, on connections that are new
			if strings.Contains(name, "fresh") {
				if got, err := up.ask(rt, struct{ io.Reader }{strings.NewReader("stream")}); err != nil || got[3] != "6" {
					t.Errorf("%s, %s with a stream: %v, %v", when, name, got, err)
				}
			}
		}
	}
	check("at first")
	up.write("ca.crt", first.pem(), second.pem())
	check("with both")
	anew := func() {
		for _, rt := range all {
			utilnet.CloseIdleConnectionsFor(rt)
		}
	}
	up.show(second)
	anew()
	check("with another certificate")
	up.write("ca.crt", second.pem())
	check("without the first")
	third := newAuthority(t)
	up.show(third)
	up.write("ca.crt", third.pem())
	anew()
	check("all at once")
}

// An idle connection that was verified by an authority that is gone is not used again, and closed;
// a watch on one goes on.
func TestWatchesSurviveARotation(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	up := newRotating(t, first)
	ca := up.write("ca.crt", first.pem())
	f := factoryOf(t, &rest.Config{Host: up.server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}})
	for name, rt := range transports(t, f) {
		if strings.HasSuffix(name, "fresh") || name == "probes" {
			continue
		}
		before, err := up.ask(rt, nil)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(deadline(t), http.MethodGet, up.server.URL+"/watch", nil)
		if err != nil {
			t.Fatal(err)
		}
		watch, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		up.write("ca.crt", second.pem())
		up.show(second)
		if !f.shared.look() {
			t.Errorf("%s: the change was not seen", name)
		}
		after, err := up.ask(rt, nil)
		if err != nil || after[0] == before[0] {
			t.Errorf("%s: %v, %v on a connection from before, %v", name, after, err, before)
		}
		up.lines <- "still here"
		if line, err := bufio.NewReader(watch.Body).ReadString('\n'); line != "still here\n" {
			t.Errorf("%s: the watch read %q, %v", name, line, err)
		}
		_ = watch.Body.Close()
		up.write("ca.crt", first.pem())
		up.show(first)
		f.shared.look()
	}
}

// Credentials follow their files, and a pair that does not fit, or a token that is empty, leaves
// those in use.
func TestCredentialsFollowTheirFiles(t *testing.T) {
	ca := newAuthority(t)
	up := newRotating(t, ca)
	cert, key := ca.issue(t)
	serial := serialOf(t, cert)
	core, logs := observer.New(zap.WarnLevel)
	f, err := New(ConfigSource{Config: &rest.Config{
		Host: up.server.URL, BearerTokenFile: up.write("token", []byte("one\n")),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: up.write("ca.crt", ca.pem()), CertFile: up.write("tls.crt", cert), KeyFile: up.write("tls.key", key),
		},
	}}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	all := transports(t, f)
	check := func(when, token, serial string, failed ...string) {
		t.Helper()
		for range 3 {
			f.shared.look()
		}
		for name, rt := range all {
			want := []string{"Bearer " + token, serial}
			if strings.HasPrefix(name, "bare") {
				want = []string{"", ""}
			}
			if got, err := up.ask(rt, nil); err != nil || got[1] != want[0] || got[2] != want[1] {
				t.Errorf("%s, %s shows %v, %v; want %v", when, name, got, err, want)
			}
		}
		var said []string
		for _, s := range f.Files() {
			if s.Err != nil {
				said = append(said, s.File)
			}
		}
		if fmt.Sprint(said) != fmt.Sprint(failed) {
			t.Errorf("%s, these are not in use: %v; want %v", when, said, failed)
		}
	}
	path := func(name string) string { return filepath.Join(up.dir, name) }
	check("at first", "one", serial)
	up.write("token", []byte("two"))
	check("with another token", "two", serial)
	cert, key = ca.issue(t)
	up.write("tls.crt", cert)
	check("with half a pair", "two", serial, path("tls.crt"), path("tls.key"))
	up.write("tls.key", key)
	serial = serialOf(t, cert)
	check("with another pair", "two", serial)
	up.write("token")
	check("without a token", "two", serial, path("token"))
	up.write("token", []byte("a b"))
	check("with two words", "two", serial, path("token"))
	if err := os.Remove(path("ca.crt")); err != nil {
		t.Fatal(err)
	}
	up.write("token", []byte("three"))
	check("without a CA", "three", serial, path("ca.crt"))
	up.write("ca.crt", ca.pem()[:200])
	check("with half a CA", "three", serial, path("ca.crt"))
	if n := logs.Len(); n != 5 { // a pair, two tokens, two of the CA
		t.Errorf("%d lines: %v", n, logs.All())
	}
}

// Credentials that upstream does not accept are read again at once, for the next request.
func TestRefusedCredentialsAreReadAgain(t *testing.T) {
	ca := newAuthority(t)
	up := newRotating(t, ca)
	name := up.write("token", []byte("one"))
	f := factoryOf(t, &rest.Config{Host: up.server.URL, BearerTokenFile: name,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.pem()}})
	own := transports(t, f)["own passing"]
	up.write("token", []byte("two"))
	f.token.Recent(-1) // the clock of a second begins here
	up.write("token", []byte("three"))
	up.refuse.Store(true)
	for ctx := deadline(t); ; {
		got, err := up.ask(own, nil)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("%v, %v", got, err)
		}
		if got[1] == "Bearer three" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A kubeconfig's inline certificates and token are followed like files; one that leads elsewhere,
// or lacks what it had, is not.
func TestKubeconfigsAreFollowed(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	up := newRotating(t, first)
	name := up.write("kubeconfig", []byte("1"))
	now := &rest.Config{Host: up.server.URL, BearerToken: "one",
		TLSClientConfig: rest.TLSClientConfig{CAData: first.pem()}}
	again := func() (*rest.Config, error) { return now, nil }
	f, err := New(ConfigSource{Config: now, Files: []string{name}, ClusterFile: name, UserFile: name,
		Reload: again}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	all := transports(t, f)
	version := 1
	change := func(what string, edit func(*rest.Config), token, failed string) {
		t.Helper()
		now = rest.CopyConfig(now)
		edit(now)
		version++
		up.write("kubeconfig", fmt.Append(nil, version))
		f.shared.look()
		for name, rt := range all {
			if strings.HasPrefix(name, "bare") {
				token = strings.TrimPrefix(token, "Bearer ")
			}
			got, err := up.ask(rt, nil)
			if err != nil || !strings.HasPrefix(name, "bare") && got[1] != "Bearer "+token {
				t.Errorf("%s, %s: %v, %v; want %q", what, name, got, err, token)
			}
		}
		for _, s := range f.Files() {
			if s.File != name || s.Use == "kubeconfig" && (s.Err == nil) != (failed == "") || s.Err != nil &&
				!strings.Contains(s.Err.Error(), failed) {
				t.Errorf("%s: %+v; want %q", what, s, failed)
			}
		}
	}
	change("another token", func(c *rest.Config) { c.BearerToken = "two" }, "two", "")
	up.show(second)
	change("another CA", func(c *rest.Config) { c.CAData = second.pem() }, "two", "")
	good := now
	change("another server", func(c *rest.Config) { c.Host, c.BearerToken = "https://elsewhere", "three" }, "two",
		"another one")
	now = good
	change("no verification", func(c *rest.Config) { c.Insecure, c.BearerToken = true, "three" }, "two", "another one")
	now = good
	change("no CA", func(c *rest.Config) { c.CAData, c.BearerToken = nil, "three" }, "two", "lacks what it had")
	now = good
	change("another token once it is good again", func(c *rest.Config) { c.BearerToken = "four" }, "four", "")
	now = good
	change("a token in a file", func(c *rest.Config) {}, "two", "")
}

// An error about trust names the file of authorities.
func TestUntrustedNamesTheFile(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	up := newRotating(t, second)
	up.server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	ca := up.write("ca.crt", first.pem())
	f := factoryOf(t, &rest.Config{Host: up.server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}})
	inlined := factoryOf(t, &rest.Config{Host: up.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: first.pem()}})
	system := factoryOf(t, &rest.Config{Host: up.server.URL})
	for want, f := range map[string]*Factory{ca: f, inline: inlined, "the system's certificates": system} {
		for name, rt := range transports(t, f) {
			_, err := up.ask(rt, nil)
			var untrusted *UntrustedError
			var verification *tls.CertificateVerificationError
			if !errors.As(err, &untrusted) || !errors.As(err, &verification) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want an error that names %s", name, err, want)
			}
		}
	}
}

// Other identities at the same upstream follow files of their own, trust what the first trusts, and
// know what it knows of addresses.
func TestOtherIdentities(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	up := newRotating(t, first)
	ca := up.write("ca.crt", first.pem())
	f := factoryOf(t, &rest.Config{Host: up.server.URL, BearerToken: "ours",
		TLSClientConfig: rest.TLSClientConfig{CAFile: ca}})
	who := &rest.Config{Host: "https://elsewhere", BearerTokenFile: up.write("token", []byte("theirs")),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	other, err := f.As(ConfigSource{Config: who})
	if err != nil {
		t.Fatal(err)
	}
	if other.shared != f.shared {
		t.Error("they have nothing in common")
	}
	rt := transports(t, other)["own passing"]
	check := func(token string) {
		t.Helper()
		if got, err := up.ask(rt, nil); err != nil || got[1] != "Bearer "+token {
			t.Errorf("%v, %v; want %s", got, err, token)
		}
	}
	check("theirs")
	up.show(second)
	up.write("ca.crt", second.pem())
	up.write("token", []byte("theirs by now"[:6]+"2"))
	f.shared.look()
	check("theirs2")
	if n := len(f.Files()); n != 3 {
		t.Errorf("%d files: %+v", n, f.Files())
	}
}

// An exec plugin is client-go's: its token is shown, by what adds credentials alone, unless there
// are others.
func TestExecPluginsGiveCredentials(t *testing.T) {
	ca := newAuthority(t)
	up := newRotating(t, ca)
	plugin := up.write("plugin", []byte(`#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"given"}}'
`))
	if err := os.Chmod(plugin, 0o700); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"": "Bearer given", "ours": "Bearer ours"} {
		f := factoryOf(t, &rest.Config{
			Host: up.server.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca.pem()},
			ExecProvider: &clientcmdapi.ExecConfig{
				Command: plugin, APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			},
		})
		for name, rt := range transports(t, f) {
			want := want
			if strings.HasPrefix(name, "bare") {
				want = ""
			}
			if got, err := up.ask(rt, nil); err != nil || got[1] != want {
				t.Errorf("%s with the token %q shows %v, %v; want %q", name, token, got, err, want)
			}
		}
	}
}

// Files are looked at every ten seconds, for as long as Run runs.
func TestRunLooksAtTheFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "token")
	if err := os.WriteFile(name, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := factoryOf(t, &rest.Config{Host: "https://127.0.0.1:1", BearerTokenFile: name})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = f.Run(ctx) })
		if err := os.WriteFile(name, []byte("two"), 0o600); err != nil {
			t.Error(err)
		}
		time.Sleep(lookInterval - 1)
		synctest.Wait()
		if got := f.token.Get(); got != "one" {
			t.Errorf("%q before it was time", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := f.token.Get(); got != "two" {
			t.Errorf("%q in the end", got)
		}
		cancel()
		running.Wait()
	})
}

// What cannot be used is said at the start, with its file.
func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for want, cfg := range map[string]*rest.Config{
		empty + ": there is no certificate": {TLSClientConfig: rest.TLSClientConfig{CAFile: empty}},
		missing:                             {TLSClientConfig: rest.TLSClientConfig{CAFile: missing}},
		"client certificate " + empty:       {TLSClientConfig: rest.TLSClientConfig{CertFile: empty, KeyFile: empty}},
		empty + ": it is empty":             {BearerTokenFile: empty},
		"not both":                          {BearerToken: "t", Username: "u"},
		"insecure":                          {TLSClientConfig: rest.TLSClientConfig{Insecure: true, CAData: []byte("x")}},
	} {
		if _, err := New(ConfigSource{Config: cfg}, zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
