package permissions

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/exchange"
	"spillway/test/framework/wire"
)

// recordingConn keeps what is read of a connection.
type recordingConn struct {
	net.Conn
	mu   sync.Mutex
	read bytes.Buffer
}

// Read implements io.Reader.
func (c *recordingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read.Write(p[:n])
	return n, err
}

// take is what was read since it was last taken.
func (c *recordingConn) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := bytes.Clone(c.read.Bytes())
	c.read.Reset()
	return b
}

// overHTTP2 sends some users' requests in HTTP/2, each on a connection of its own, of which every
// byte is looked at.
func (w *world) overHTTP2(t *testing.T) {
	t.Parallel()
	columns := slices.DeleteFunc(targets(), func(c target) bool { return c.more || c.until != nil })
	n := counts{stranded: map[string]int{}, early: map[string]int{}}
	var asking sync.WaitGroup
	for _, name := range []string{"nothing", "cm-red", "cm-list-red", "cm-a-red", "in-masters", "system:anonymous",
		"an expired token"} {
		p := w.person(t, name)
		for _, lane := range lanes(columns) {
			asking.Go(func() {
				for _, column := range lane {
					if err := w.cellOverHTTP2(t.Context(), &n, p, column); err != nil {
						t.Errorf("%s: %s: %v", p.Name, column, err)
					}
				}
			})
		}
	}
	asking.Wait()
	t.Logf("%d cells, %d refused, %d from memory, %d refused by the proxy itself", n.cells, n.refused, n.memory, n.own)
	if n.cells < len(columns) || n.memory == 0 || n.own == 0 {
		t.Error("too few requests were sent")
	}
}

// cellOverHTTP2 sends one request both ways.
func (w *world) cellOverHTTP2(ctx context.Context, n *counts, p identity, column target) error {
	var problem error
	for range 5 {
		var answers [2]*exchange.Answer
		for i, to := range []wire.Address{w.Direct(p.User), authcluster.Through(w.proxy, p.User)} {
			a, received, err := askOverHTTP2(ctx, to, p.User, column)
			if err != nil {
				return err
			}
			if a.Status >= http.StatusBadRequest && bytes.Contains(received, []byte(canary)) {
				return errors.New("refused, and shown an object")
			}
			answers[i] = a
		}
		sameFlow(answers[0], answers[1])
		result := exchange.Compare(w.tally, column.Request, answers[0], answers[1])
		if len(result.Problems) == 0 {
			n.note(result)
			return nil
		}
		problem = errors.New(result.Problems[0])
		if !column.clocked && !result.OutOfTime() {
			break
		}
	}
	return problem
}

// askOverHTTP2 sends a request on a connection of its own, and returns every byte that came on it
// until the end of the answer.
func askOverHTTP2(ctx context.Context, to wire.Address, p authcluster.User, column target) (*exchange.Answer, []byte,
	error) {
	var c *recordingConn
	config := to.TLS.Clone()
	config.NextProtos = []string{"h2"}
	transport := &http2.Transport{DisableCompression: true, DialTLSContext: func(ctx context.Context, network, addr string,
		_ *tls.Config) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(raw, config)
		c = &recordingConn{Conn: secure}
		return c, secure.HandshakeContext(ctx)
	}}
	defer transport.CloseIdleConnections()
	e := &exchange.Endpoint{Base: "https://" + to.Host, Config: &rest.Config{}, Client: &http.Client{Transport: transport}}
	request, err := e.NewRequest(ctx, column.Request)
	if err != nil {
		return nil, nil, err
	}
	for name, values := range p.Header {
		request.Header[name] = values
	}
	start := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	a := &exchange.Answer{Proto: response.Proto, Status: response.StatusCode, Header: exchange.WholeHeader(response)}
	a.Body, a.Cut = io.ReadAll(response.Body)
	a.Took, a.Length = time.Since(start), len(a.Body)
	if response.Header.Get("Content-Encoding") == "gzip" {
		if a.Body, err = wire.Gunzip(a.Body); err != nil {
			return nil, nil, err
		}
	}
	return a, c.take(), nil
}
