// Package flowcontrol holds the answers to what is beyond a limit against kube-apiserver's own
// code.
package flowcontrol

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"

	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/serve"
	"spillway/internal/source"
)

// patience bounds waits that a working program ends at once.
const patience = time.Minute

// blocked answers nothing until release is closed, and reports each request that arrives.
func blocked(arrived chan<- struct{}, release <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		arrived <- struct{}{}
		<-release
	})
}

// apiserver is a handler below those of kube-apiserver's filters that have a part in a 429, in its
// order: it lets one request in.
func apiserver(h http.Handler) http.Handler {
	h = filters.WithMaxInFlightLimit(h, 1, 1, filters.BasicLongRunningRequestCheck(sets.NewString(), sets.NewString()))
	h = genericapifilters.WithRequestInfo(h, &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")})
	h = genericapifilters.WithCacheControl(h)
	return genericapifilters.WithAuditInit(h)
}

// emptyCatalog is a catalog in which nothing is mirrored.
type emptyCatalog struct{}

func (emptyCatalog) Find(schema.GroupVersionResource) *source.Source { return nil }

func (emptyCatalog) Knows(schema.GroupVersionResource) bool { return false }

func (emptyCatalog) Soon(schema.GroupVersionResource) bool { return false }

// spillway passes everything through to upstream, one watch at a time, and returns where.
func spillway(t *testing.T, upstream string) string {
	t.Helper()
	base, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	client := passthrough.Transports{Any: transport, HTTP1: transport, Fresh: transport}
	limiter := flowcontrol.NewLimiter(flowcontrol.Limits{Watches: 1}, flowcontrol.DefaultQueue, nil)
	server := serve.New(serve.Options{
		Catalog: emptyCatalog{}, Limiter: limiter, StallTimeout: patience, Metrics: serve.NewMetrics(nil), Log: zap.NewNop(),
		Forwarder: passthrough.NewForwarder(passthrough.ForwarderOptions{Base: base, Client: client, Limiter: limiter}),
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln, serve.ListenerConfig{}) }()
	t.Cleanup(func() {
		if err := server.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return "http://" + ln.Addr().String()
}

const watch = "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\nAudit-Id: the-same\r\n\r\n"

// ask sends a request, and does not wait for its answer.
func ask(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, watch); err != nil {
		t.Fatal(err)
	}
	return c
}

// The answer to a watch too many is, header for header and byte for byte, that of kube-apiserver's
// own filter, and the connection serves the next request after it, which is refused alike. Of Date
// and of how long to stay away only the form is compared.
func TestTooManyRequests(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	direct := httptest.NewServer(apiserver(blocked(arrived, release)))
	upstream := httptest.NewServer(blocked(arrived, release))
	t.Cleanup(upstream.Close)
	t.Cleanup(direct.Close)
	t.Cleanup(func() { close(release) })
	through := spillway(t, upstream.URL)

	var answers [][]byte
	for _, at := range []string{direct.URL, through} {
		_, address, _ := bytes.Cut([]byte(at), []byte("//"))
		ask(t, string(address))
		select {
		case <-arrived:
		case <-time.After(patience):
			t.Fatal("the first watch does not arrive")
		}
		c := ask(t, string(address))
		reader := bufio.NewReader(c)
		var both []byte
		for range 2 {
			both = append(both, answer(t, at, reader)...)
			if _, err := io.WriteString(c, watch); err != nil {
				t.Fatal(err)
			}
		}
		answers = append(answers, both)
	}
	if !bytes.Equal(answers[0], answers[1]) {
		t.Errorf("directly:\n%s\nthrough the proxy:\n%s", answers[0], answers[1])
	}
}

// answer reads one answer, and writes it out with its headers sorted.
func answer(t *testing.T, from string, r *bufio.Reader) []byte {
	t.Helper()
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%s: %v", from, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%s: %s %v %q, %v", from, response.Status, response.Header, body, err)
	}
	if _, err := http.ParseTime(response.Header.Get("Date")); err != nil {
		t.Errorf("%s: Date: %v", from, err)
	}
	response.Header.Set("Date", "now")
	var seconds int
	if n, err := fmt.Sscan(response.Header.Get("Retry-After"), &seconds); n != 1 || err != nil || seconds < 1 ||
		seconds > 2 {
		t.Errorf("%s: Retry-After %q, %v", from, response.Header.Get("Retry-After"), err)
	}
	response.Header.Set("Retry-After", "soon")
	out := fmt.Appendf(nil, "%s %s, %d bytes\n", response.Proto, response.Status, response.ContentLength)
	for _, key := range slices.Sorted(maps.Keys(response.Header)) {
		out = fmt.Appendf(out, "%s: %q\n", key, response.Header[key])
	}
	return append(append(out, '\n'), body...)
}
