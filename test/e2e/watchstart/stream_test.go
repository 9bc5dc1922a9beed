package watchstart

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"spillway/test/framework/exchange"
)

// stream is an open watch. Its reader collects events to the end.
type stream struct {
	passed bool                // the API server's own answer
	first  time.Time           // when the first event came; read after an event has been
	events chan exchange.Event // closed at the end
	err    error               // why it ended, unless cleanly; read after events is closed
	cancel context.CancelFunc
}

// refusedError is a watch that was refused.
type refusedError struct {
	status     int
	retryAfter string
	text       string
}

func (e *refusedError) Error() string { return fmt.Sprintf("refused: %d %s", e.status, e.text) }

// way is how to reach a server in both protocols.
type way struct{ http1, http2 *exchange.Endpoint }

func newWay(e *exchange.Endpoint) way { return way{e, e.OverHTTP2()} }

// open starts a watch and returns when its head is here.
func (w way) open(ctx context.Context, f format, target string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	var s *stream
	var err error
	if f.webSocket {
		s, err = w.openWebSocket(ctx, f, target)
	} else {
		s, err = w.openBody(ctx, f, target)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s.cancel = cancel
	return s, nil
}

func (w way) openBody(ctx context.Context, f format, target string) (*stream, error) {
	e := w.http1
	if f.http2 {
		e = w.http2
	}
	header := map[string]string{"Accept": f.accept}
	if f.gzip {
		header["Accept-Encoding"] = "gzip"
	}
	out, err := e.NewRequest(ctx, exchange.Request{Target: target, Header: header})
	if err != nil {
		return nil, err
	}
	response, err := e.Client.Do(out)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		return nil, &refusedError{response.StatusCode, response.Header.Get("Retry-After"), string(body)}
	}
	s := &stream{passed: response.Header.Get(exchange.FlowControl) != "", events: make(chan exchange.Event, 1024)}
	go s.read(response)
	return s, nil
}

// read reads a body to its end.
func (s *stream) read(response *http.Response) {
	defer close(s.events)
	defer response.Body.Close()
	var in io.Reader = response.Body
	if response.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if in, err = gzip.NewReader(in); err != nil { // each flush is a member of its own (W-7)
			s.ended(err)
			return
		}
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), asProtobuf) {
		s.ended(s.readFrames(in))
		return
	}
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.send(line)
		}
		if err != nil {
			s.ended(err)
			return
		}
	}
}

// readFrames reads events in protobuf, each behind its length (W-132).
func (s *stream) readFrames(in io.Reader) error {
	frames := protobuf.LengthDelimitedFramer.NewFrameReader(io.NopCloser(in))
	for buffer := make([]byte, 1<<20); ; {
		n, err := frames.Read(buffer)
		if err != nil {
			return err
		}
		line, err := exchange.DecodeFrame(buffer[:n])
		if err != nil {
			return err
		}
		s.send(line)
	}
}

// send hands an event on.
func (s *stream) send(line []byte) {
	if s.first.IsZero() {
		s.first = time.Now()
	}
	s.events <- exchange.ParseEvent(line)
}

// ended notes why a stream has ended.
func (s *stream) ended(err error) {
	if !errors.Is(err, io.EOF) {
		s.err = err
	}
}

// openWebSocket starts a watch over a WebSocket. The end of the handshake is its head.
func (w way) openWebSocket(ctx context.Context, f format, target string) (*stream, error) {
	e := w.http1
	config, err := websocket.NewConfig(strings.Replace(e.Base, "http", "ws", 1)+target, e.Base)
	if err != nil {
		return nil, err
	}
	config.TlsConfig = &tls.Config{
		InsecureSkipVerify: e.Config.Insecure, RootCAs: e.Client.Transport.(*http.Transport).TLSClientConfig.RootCAs,
	}
	config.Header = http.Header{"Accept": {f.accept}, "Authorization": {"Bearer " + e.Config.BearerToken},
		"User-Agent": {exchange.UserAgent}}
	conn, err := config.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	s := &stream{events: make(chan exchange.Event, 1024)}
	go func() {
		defer close(s.events)
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		for {
			var frame []byte
			if err := websocket.Message.Receive(conn, &frame); err != nil {
				s.ended(err)
				return
			}
			if f.accept == asProtobuf {
				line, err := exchange.DecodeFrame(frame)
				if err != nil {
					s.ended(err)
					return
				}
				frame = line
			}
			if len(frame) > 0 && frame[len(frame)-1] != '\n' {
				frame = append(frame, '\n')
			}
			s.send(frame)
		}
	}()
	return s, nil
}

// errEnded says that a watch ended cleanly.
var errEnded = errors.New("the watch ended")

// until reads events until enough of them are there. Its error says why they did not come.
func (s *stream) until(ctx context.Context, enough func([]exchange.Event) bool) (all []exchange.Event, err error) {
	for !enough(all) {
		select {
		case e, ok := <-s.events:
			switch {
			case !ok && s.err != nil:
				return all, s.err
			case !ok:
				return all, errEnded
			}
			all = append(all, e)
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
	return all, nil
}
