package h2_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"spillway/internal/h2"
)

// A handler keeps its stream and returns. The stream's owner writes to it, without a goroutine of
// its own and without waiting for the client.
func ExampleResponse_Keep() {
	kept := make(chan *h2.Stream, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the handler's words, ")
		if s, err := w.(*h2.Response).Keep(nil); err == nil {
			kept <- s
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		h2.New(conn, h2.Options{
			Handler: handler, Log: zap.NewNop(), MaxStreams: 100, MaxHeader: 8 << 10, Window: 64 << 10,
			Quiet: time.Minute, Pong: time.Minute, Idle: time.Minute,
		}).Serve()
	}()
	go func() {
		s := <-kept
		if _, err := s.Offer([]byte("and the owner's")); err != nil { // as much as there is room for
			s.Reset()
			return
		}
		s.End()
	}()

	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	response, err := transport.RoundTrip(request("http://" + listener.Addr().String() + "/"))
	if err != nil {
		panic(err)
	}
	body, err := io.ReadAll(response.Body)
	fmt.Println(response.Proto, response.StatusCode, string(body), err)
	_ = response.Body.Close()
	transport.CloseIdleConnections()
	<-served
	// Output: HTTP/2.0 200 the handler's words, and the owner's <nil>
}

func request(url string) *http.Request {
	r, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		panic(err)
	}
	return r
}
