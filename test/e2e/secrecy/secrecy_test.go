// Package secrecy holds the proxy to what it promises of credentials: whatever becomes of a
// request, they are in no log line, metric or debug page.
package secrecy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/test/framework/process"
)

// canary is a credential that must not be seen anywhere, as it is or in the form in which a browser
// sends it.
const canary = "canary-of-a-token-0123456789"

var encoded = base64.RawURLEncoding.EncodeToString([]byte(canary))

// requests are of all kinds, good and bad, with a credential wherever one can be. %s is the canary.
var requests = map[string]string{
	"from memory": "GET /api/v1/configmaps?resourceVersion=0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: " +
		"Bearer %s\r\nConnection: close\r\n\r\n",
	"a watch": "GET /api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0 HTTP/1.1\r\nHost: " +
		"localhost\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n",
	"passed through": "GET /api/v1/secrets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
		"%s\r\nConnection: close\r\n\r\n",
	"basic": "GET /api/v1/secrets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " +
		"%s\r\nConnection: close\r\n\r\n",
	"for a proxy": "GET /api/v1/secrets HTTP/1.1\r\nHost: localhost\r\nProxy-Authorization: Basic " +
		"%s\r\nConnection: close\r\n\r\n",
	"a cookie": "GET /api/v1/secrets HTTP/1.1\r\nHost: localhost\r\nCookie: token=%s\r\nConnection: " +
		"close\r\n\r\n",
	"a write": "POST /api/v1/namespaces/n/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: " +
		"Bearer %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
	"chunks": "POST /api/v1/namespaces/n/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: " +
		"Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"a broken chunk": "POST /api/v1/namespaces/n/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: " +
		"Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n%[1]s\r\n{}\r\n0\r\n\r\n",
	"a secret in a body": "POST /api/v1/namespaces/n/secrets HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
		"60\r\n\r\n{\"stringData\":{\"a\":\"%s",
	"an upgrade": "GET /api/v1/namespaces/n/pods/p/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: " +
		"Bearer %s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n",
	"a browser's": "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " +
		"websocket\r\nSec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.ENCODED%s\r\n\r\n",
	"hop by hop": "GET /api/v1/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
		"%s\r\nConnection: Authorization\r\n\r\n",
	"twice": "GET /api/v1/configmaps?resourceVersion=0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: " +
		"Bearer %s\r\nAuthorization: Bearer 2%[1]s\r\nConnection: close\r\n\r\n",
	"another host": "GET / HTTP/1.1\r\nHost: evil\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n",
	"impersonation": "GET /api/v1/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
		"%s\r\nImpersonate-User: bob\r\nConnection: close\r\n\r\n",
	"no header":  "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nnonsense\r\n\r\n",
	"no request": "%s\r\nAuthorization: Bearer %[1]s\r\n\r\n",
	"no path":    "GET /%%zz?token=%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %[1]s\r\n\r\n",
	"a null":     "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\x00\r\n\r\n",
	"a fold":     "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization:\r\n Bearer %s\r\n\r\n",
	"two lengths": "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: " +
		"1\r\nContent-Length: 2\r\n\r\n",
	"a length of its own": "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n",
	"a coding of its own": "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: %s\r\n\r\n",
	"a head that is too big": "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s" +
		strings.Repeat("a", 100_000) + "\r\n\r\n",
	"half a head": "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s",
	"half a body": "POST /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: " +
		"100\r\n\r\nhalf",
}

// TestCredentialsAreSeenNowhere sends them all at debug level, over plain HTTP, TLS and HTTP/2, to
// an upstream that answers and to one that is gone, and looks for the canary in all that the proxy
// says of itself.
func TestCredentialsAreSeenNowhere(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond, TLS: true})
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","contexts":[{"name":"test","context":{"cluster":"test","user":"test"}}],
"clusters":[{"name":"test","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"test","user":{"token":"own-%s"}}]}`,
		up.URL, base64.StdEncoding.EncodeToString(up.Config().CAData), canary)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+kubeconfig, "--resources=configmaps",
		"--listen-tls=127.0.0.1:0", "--profiling", "--allow-core-dumps", "--stall-timeout=2s")
	answered := map[string]int{}
	for _, upstream := range []string{"up", "gone"} {
		if upstream == "gone" {
			up.Close()
		}
		for name, request := range requests {
			raw := strings.ReplaceAll(fmt.Sprintf(request, canary), "ENCODED"+canary, encoded)
			for listener, address := range map[string]string{"plain": strings.TrimPrefix(p.Plain, "http://"),
				"TLS": strings.TrimPrefix(p.TLS, "https://")} {
				head := say(t, address, listener == "TLS", raw)
				t.Logf("%s, %s, upstream %s: %.60q", name, listener, upstream, head)
				answered[head]++
			}
		}
		overHTTP2(t, p.TLS)
	}
	if len(answered) < 5 {
		t.Errorf("the requests were all answered alike: %v", answered)
	}

	for page, text := range told(t, p) {
		for _, secret := range []string{canary, encoded} {
			if at := bytes.Index(text, []byte(secret)); at >= 0 {
				t.Errorf("%s has it: …%s…", page, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
}

// say sends bytes and returns the first line of what is answered; "" if nothing is soon.
func say(t *testing.T, address string, secure bool, raw string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	_ = c.SetDeadline(time.Now().Add(time.Second)) // some wait for more, and leave
	_, _ = io.WriteString(c, raw)                  // fails if the server has seen enough
	line, _, _ := bufio.NewReader(c).ReadLine()
	return string(line)
}

// overHTTP2 sends what net/http's client can send.
func overHTTP2(t *testing.T, url string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	for _, target := range []string{"/api/v1/configmaps?resourceVersion=0", "/api/v1/configmaps?watch=1&timeoutSeconds=1",
		"/api/v1/secrets", "/%zz", "/x?token=" + canary} {
		for _, body := range []string{"", canary} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[body == ""]
			r, err := http.NewRequestWithContext(ctx, method, url, io.MultiReader(strings.NewReader(body)))
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Opaque = target
			r.Header.Set("Authorization", "Bearer "+canary)
			r.Header.Set("X-Large", strings.Repeat("a", len(target)*100))
			if response, err := transport.RoundTrip(r); err == nil { // some are refused
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			cancel()
		}
	}
}

// told is all that the proxy says of itself.
func told(t *testing.T, p *process.Proxy) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"the log": p.Log.Text()}
	for _, page := range []string{
		"/", "/metrics", "/livez", "/readyz?verbose", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine",
		"/debug/pprof/heap?debug=1", "/debug/pprof/heap", "/debug/pprof/allocs?debug=1", "/debug/pprof/block?debug=1",
		"/debug/pprof/mutex?debug=1",
		"/debug/pprof/threadcreate?debug=1", "/debug/pprof/trace?seconds=1", "/debug/pprof/symbol",
	} {
		response, err := http.Get(p.Metrics + page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || len(text) == 0 {
			t.Fatalf("%s: %v, %d bytes", page, err, len(text))
		}
		all[page] = text
	}
	if !bytes.Contains(all["the log"], []byte(`"level":"debug"`)) {
		t.Error("the log has no line of debug level")
	}
	return all
}
