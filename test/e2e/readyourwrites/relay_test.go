package readyourwrites

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/test/framework/controlplane"
)

// delayingProxy stands between the proxy and the apiserver and makes everything slow that a cache
// may lean on, and nothing else.
//
// The bytes of the mirror's own watch arrive some milliseconds late, each run of them by a time of
// its own and all in their order, as from an apiserver whose watchers lag (W-212); probes and their
// watches do not, so that what is known of upstream is always ahead of what has arrived. Complete
// LISTs take long to come, as from an apiserver under load: else none of them would be worth a
// proof.
type delayingProxy struct {
	url     string
	delayed atomic.Int64 // runs of bytes of watches
}

const (
	leastDelay, mostDelay = 5 * time.Millisecond, 50 * time.Millisecond
	// dearList is how much longer a LIST takes. A client can tell that from a proof that came late,
	// and from nothing else.
	dearList = 75 * time.Millisecond
)

func newRelay(t *testing.T, cp *controlplane.ControlPlane) *delayingProxy {
	t.Helper()
	upstream, err := url.Parse(cp.URL())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cp.CA())
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true, MaxIdleConnsPerHost: 256,
	}
	r := &delayingProxy{}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // clients that leave
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(upstream)
			// a kubeconfig has none for plain HTTP
			p.Out.Header.Set("Authorization", "Bearer "+cp.Config(controlplane.Admin).BearerToken)
		},
		ModifyResponse: func(resp *http.Response) error {
			switch mirror, watch := isMirror(resp.Request), isWatch(resp.Request); {
			case mirror && watch:
				resp.Body = r.late(resp.Body)
			case !mirror && !watch && isList(resp.Request):
				time.Sleep(dearList)
			}
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.CloseClientConnections() // watches last
		server.Close()
		transport.CloseIdleConnections()
	})
	r.url = server.URL
	return r
}

// isMirror reports a request that the proxy sends to mirror a resource. Its probes say so in their
// User-Agent.
func isMirror(r *http.Request) bool {
	agent := r.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "spillway/") && !strings.HasSuffix(agent, " probe")
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// isList reports a LIST of more than one object.
func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps") && r.URL.Query().Get("limit") != "1"
}

// lateBody hands on what it reads some time after it arrived.
type lateBody struct {
	io.Closer
	runs chan run
	rest []byte
}

// run is bytes that may be read from a moment on, or why there are no more.
type run struct {
	bytes []byte
	due   time.Time
	err   error
}

func (r *delayingProxy) late(body io.ReadCloser) *lateBody {
	l := &lateBody{Closer: body, runs: make(chan run, 4096)}
	go func() {
		defer close(l.runs)
		var due time.Time
		for {
			buf := make([]byte, 32<<10)
			n, err := body.Read(buf)
			if at := time.Now().Add(leastDelay + rand.N(mostDelay-leastDelay)); at.After(due) {
				due = at
			}
			r.delayed.Add(1)
			l.runs <- run{buf[:n], due, err}
			if err != nil {
				return
			}
		}
	}()
	return l
}

// Read implements io.Reader.
func (l *lateBody) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		next, ok := <-l.runs
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(next.due))
		if next.err != nil && len(next.bytes) == 0 {
			return 0, next.err
		}
		l.rest = next.bytes
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
