package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"

	"spillway/internal/passthrough"
	"spillway/internal/upstream/transport"
)

const unknownToken = "Bearer nobody"

// goAwayServer is an upstream that closes an HTTP/2 connection on which a stranger, a client with
// an unknown token, sent a request, as kube-apiserver does. It refuses the stranger once an upload
// has begun. An upload on the same connection is lost: the GOAWAY names the stranger's request as
// the last.
type goAwayServer struct {
	came  chan struct{} // the stranger has
	begun chan struct{} // the first byte of an upload is here
	once  sync.Once
}

// serve speaks HTTP/2 on c until its other end leaves.
func (w *goAwayServer) serve(_ *http.Server, c *tls.Conn, _ http.Handler) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	g := &guarded{framer: http2.NewFramer(c, c)}
	g.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = g.framer.WriteSettings()
	var answering sync.WaitGroup
	defer answering.Wait()
	for {
		frame, err := g.framer.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				g.write(func(f *http2.Framer) error { return f.WriteSettingsAck() })
			}
		case *http2.MetaHeadersFrame:
			for _, field := range frame.Fields {
				if field.Name == "authorization" && field.Value == unknownToken {
					g.last = id
					answering.Go(func() {
						<-w.begun
						g.refuse(id)
					})
					close(w.came)
				}
			}
		case *http2.DataFrame:
			if g.last > 0 && id == g.last {
				continue
			}
			w.once.Do(func() { close(w.begun) })
			if frame.StreamEnded() && g.last == 0 {
				g.answer(id, "200")
			}
		}
	}
}

// guarded is a connection to a goAwayServer.
type guarded struct {
	mu     sync.Mutex // of writing
	framer *http2.Framer
	last   uint32 // the stranger's stream; 0: there is none. Owned by the reading goroutine
}

func (g *guarded) write(frame func(*http2.Framer) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = frame(g.framer) // fails when the other end has left, as reading does
}

func (g *guarded) answer(id uint32, code string) {
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: code, Sensitive: true})
	g.write(func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
			EndStream: true})
	})
}

func (g *guarded) refuse(id uint32) {
	g.write(func(f *http2.Framer) error { return f.WriteGoAway(id, http2.ErrCodeNo, nil) })
	g.answer(id, "401")
}

// A stranger that upstream refuses, closing the connection of the request, costs no other client a
// request: an upload that has begun goes on, and the next one finds another connection.
func TestStrangersEndNoUploads(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		w := &goAwayServer{came: make(chan struct{}), begun: make(chan struct{})}
		up := httptest.NewUnstartedServer(http.NotFoundHandler())
		up.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // httptest's
		up.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": w.serve}
		up.StartTLS()
		o.mutate = func(o *passthrough.ForwarderOptions) { o.Base, o.Client = without(t, up) }
		fr := newFront(t, http.NotFoundHandler(), o)
		ctx := deadline(t)

		refused := post(ctx, fr.client(t), fr.url(), unknownToken, strings.NewReader("x"))
		await(t, w.came, "the stranger upstream")
		first := begin(ctx, t, fr, w)
		if code := await(t, refused, "the stranger's answer"); code != "401" {
			t.Errorf("the stranger got %s", code)
		}
		second := begin(ctx, t, fr, w)
		for _, u := range []*upload{first, second} {
			if code := u.end(t); code != "200" {
				t.Errorf("an upload got %s", code)
			}
		}
	})
}

// without are the transports to an upstream without credentials, as they are outside of tests.
func without(t *testing.T, up *httptest.Server) (*url.URL, passthrough.Transports) {
	t.Helper()
	base, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})
	config := &rest.Config{Host: up.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	transports, err := transport.New(transport.ConfigSource{Config: config}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	shared, err := transports.Bare(transport.Passing)
	if err != nil {
		t.Fatal(err)
	}
	http1, err := transports.Bare(transport.PassingHTTP1)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := transports.Bare(transport.PassingFresh)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		shared.CloseIdleConnections()
		http1.CloseIdleConnections()
		up.CloseClientConnections()
		up.Close()
	})
	return base, passthrough.Transports{Any: shared, HTTP1: http1, Fresh: fresh}
}

// post sends a body and tells the code of the answer, or what is wrong.
func post(ctx context.Context, client *http.Client, to, authorization string, body io.Reader) <-chan string {
	told := make(chan string, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, to+"/api/v1/namespaces/a/configmaps", body)
		if err != nil {
			told <- err.Error()
			return
		}
		r.Header.Set("Authorization", authorization)
		response, err := client.Do(r)
		if err != nil {
			told <- err.Error()
			return
		}
		_ = response.Body.Close()
		told <- fmt.Sprint(response.StatusCode)
	}()
	return told
}

// upload is a request whose body comes in pieces.
type upload struct {
	body *io.PipeWriter
	code <-chan string
}

// begin sends the beginning of an upload, and returns when upstream has some.
func begin(ctx context.Context, t *testing.T, fr *front, w *goAwayServer) *upload {
	t.Helper()
	body, pieces := io.Pipe()
	u := &upload{body: pieces, code: post(ctx, fr.client(t), fr.url(), "Bearer somebody", body)}
	u.piece()
	await(t, w.begun, "the upload upstream")
	return u
}

func (u *upload) piece() { _, _ = io.WriteString(u.body, "piece") } // fails when the answer is there already

func (u *upload) end(t *testing.T) string {
	t.Helper()
	for range 10 {
		u.piece()
	}
	_ = u.body.Close()
	return await(t, u.code, "the answer to an upload")
}
