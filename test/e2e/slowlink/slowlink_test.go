// Package slowlink shows that a client on a thin line gets its state: through a proxy of its own,
// over all three protocols, as from the API server.
package slowlink

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
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

// size is how much goes over the lines, and how long a client may take nothing: over HTTP/2 a
// socket takes more only when 32 KiB have gone.
type size struct {
	objects, padding int
	stall            time.Duration
}

// TestMain has all lines used at the same time, however few processors there are: their clients
// sleep.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// perSecond is what a client takes, in bytes.
const perSecond = 40_000

// line is a connection that carries perSecond bytes, steadily.
type line struct {
	net.Conn
	free time.Time // when it may carry the next byte; its reader's
}

// Read implements net.Conn.
func (l *line) Read(b []byte) (int, error) {
	time.Sleep(time.Until(l.free))
	n, err := l.Conn.Read(b[:min(len(b), perSecond/20)])
	if now := time.Now(); l.free.Before(now.Add(-time.Second)) { // it was idle
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / perSecond)
	return n, err
}

// dial opens a line.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &line{Conn: c}, c.(*net.TCPConn).SetReadBuffer(4096)
}

// kubeconfig is a file that leads to up.
func kubeconfig(t *testing.T, up *fakeapiserver.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","contexts":[{"name":"test","context":{"cluster":"test"}}],
"clusters":[{"name":"test","cluster":{"server":%q}}]}`, up.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestStateAndEventsArriveOverThinLine requests a state over a line that carries 40 kB/s: all of it
// arrives, and a watch goes on. With -short there is less of it.
func TestStateAndEventsArriveOverThinLine(t *testing.T) {
	s := size{objects: 157, padding: 100_000, stall: 30 * time.Second}
	if testing.Short() {
		s = size{objects: 70, padding: 10_000, stall: 5 * time.Second}
	}
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	t.Cleanup(up.Close)
	for i := range s.objects {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(s.padding))
	}
	binary := process.BuildProxy(t)
	for budget, flags := range map[string][]string{"without a budget": nil, "with a budget": {"--memory-budget=512Mi"}} {
		t.Run(budget, func(t *testing.T) {
			t.Parallel()
			p := process.StartProxy(t, binary, append([]string{"--kubeconfig=" + kubeconfig(t, up),
				"--resources=configmaps", "--listen-tls=127.0.0.1:0",
				"--insecure-allow-all", "--stall-timeout=" + s.stall.String()}, flags...)...)
			for name, v := range map[string]slowLinkClient{
				"HTTP1": {url: p.Plain, transport: &http.Transport{}},
				"HTTP1 TLS": {url: p.TLS, transport: &http.Transport{TLSNextProto: map[string]func(string,
					*tls.Conn) http.RoundTripper{}}},
				"HTTP2": {url: p.TLS, transport: &http.Transport{ForceAttemptHTTP2: true}},
			} {
				v.size, v.up = s, up
				v.transport.DialContext, v.transport.TLSClientConfig = dial,
					&tls.Config{InsecureSkipVerify: true} //nolint:gosec // its own
				v.transport.DisableCompression = true
				t.Run(name+"/LIST", func(t *testing.T) { t.Parallel(); v.list(t) })
				t.Run(name+"/watch-list", func(t *testing.T) { t.Parallel(); v.watch(t, p) })
			}
		})
	}
}

// slowLinkClient is a client on a thin line.
type slowLinkClient struct {
	size
	url       string
	transport *http.Transport
	up        *fakeapiserver.Server
}

// ask requests configmaps, on a line that nothing else uses.
func (v slowLinkClient) ask(t *testing.T, query string) *http.Response {
	t.Helper()
	transport := v.transport.Clone()
	t.Cleanup(transport.CloseIdleConnections)
	response, err := (&http.Client{Transport: transport}).Get(v.url + "/api/v1/configmaps?" + query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("answered %s", response.Status)
	}
	return response
}

// list takes a whole LIST.
func (v slowLinkClient) list(t *testing.T) {
	began := time.Now()
	body, err := io.ReadAll(v.ask(t, "resourceVersion=0").Body)
	t.Logf("%d bytes in %v: %v", len(body), time.Since(began), err)
	var list struct{ Items []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil || len(list.Items) < v.objects {
		t.Errorf("%d objects arrived of %d: %v", len(list.Items), v.objects, err)
	}
}

// watch takes a whole state, and an event that follows.
func (v slowLinkClient) watch(t *testing.T, p *process.Proxy) {
	began := time.Now()
	events := bufio.NewReader(
		v.ask(t, "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"+
			"&resourceVersion=0").Body)
	name := strings.ToLower("later-" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()))
	added, complete, bytes := 0, false, 0
	for {
		text, err := events.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d objects, %d bytes and %v: %v", added, bytes, time.Since(began), err)
		}
		bytes += len(text)
		switch {
		case strings.Contains(text, `"BOOKMARK"`) && !complete:
			t.Logf("%d objects, %d bytes in %v", added, bytes, time.Since(began))
			if complete = true; added < v.objects {
				t.Errorf("%d objects arrived of %d", added, v.objects)
			}
			v.up.Create(fakeapiserver.ConfigMaps, "n", name)
		case strings.Contains(text, `"`+name+`"`):
			return
		default:
			added++
		}
	}
}
