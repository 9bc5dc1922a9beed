package transport

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// Requests that begin at once have a connection each, which ends with the answer. That may begin
// before the request has ended.
func TestFresh(t *testing.T) {
	const requests = 24
	made, ended := make(chan net.Conn, 2*requests), make(chan net.Conn, 2*requests)
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		piece := make([]byte, 1)
		for _, err := io.ReadFull(r.Body, piece); err == nil; _, err = io.ReadFull(r.Body, piece) {
			_, _ = w.Write(piece)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	up.EnableHTTP2 = true
	up.Config.ConnState = func(c net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			made <- c
		case http.StateClosed:
			ended <- c
		}
	}
	up.StartTLS()
	defer up.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})
	rt, err := factoryOf(t, &rest.Config{Host: up.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}).Bare(PassingFresh)
	if err != nil {
		t.Fatal(err)
	}
	group, ctx := errgroup.WithContext(deadline(t))
	for range requests {
		group.Go(func() error { return echo(ctx, rt, up.URL) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for range requests {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a connection is still there after its answer")
		}
	}
	if n := len(made); n != requests {
		t.Errorf("%d connections for %d requests", n, requests)
	}
}

// echo sends a body after the head of the answer has come, and reads it back.
func echo(ctx context.Context, rt http.RoundTripper, url string) error {
	body, piece := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	response, err := rt.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got := make([]byte, 1)
	for range 10 {
		if _, err := piece.Write([]byte("a")); err != nil {
			return err
		}
		if _, err := io.ReadFull(response.Body, got); err != nil {
			return err
		}
	}
	_ = piece.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
