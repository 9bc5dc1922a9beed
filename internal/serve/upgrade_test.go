package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/clientconn"
)

// switching is an upstream that agrees to any upgrade of a request it likes and echoes until the
// client ends.
func switching(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/refused" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
		"%s\r\nX-Stream-Protocol-Version: %s\r\n\r\n",
		r.Header.Get("Upgrade"), r.Header.Get("X-Stream-Protocol-Version"))
	if err := rw.Flush(); err != nil {
		return
	}
	_, _ = io.Copy(conn, rw)
}

// upgrade opens an upgraded connection; early is sent with the head of the request.
func (f *front) upgrade(t *testing.T, path, headers, early string) (net.Conn, io.Reader, *http.Response) {
	t.Helper()
	conn, r := f.dial(t)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n%s\r\n\r\n%s", path,
		headers, early)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, r, resp
}

const spdy = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io"

func TestUpgradeEchoes(t *testing.T) {
	both(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, http.HandlerFunc(switching), o)
		conn, r, resp := fr.upgrade(t, "/api/v1/namespaces/a/pods/b/exec?command=sh", spdy, "early ")
		if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" ||
			resp.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
			t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
		}
		if length, framed := resp.Header["Content-Length"]; framed || len(resp.TransferEncoding) > 0 {
			t.Errorf("a changed protocol has no length: %q %q", length, resp.TransferEncoding)
		}
		if n := fr.metric(t, "spillway_passthrough_upgraded_connections"); n != 1 {
			t.Errorf("%v upgrades active, want 1", n)
		}
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		wrote := make(chan error, 1)
		go func() {
			_, err := conn.Write(data)
			wrote <- err
		}()
		got := make([]byte, len("early ")+len(data))
		if _, err := io.ReadFull(r, got); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append([]byte("early "), data...)) {
			t.Error("the echo differs from what was sent")
		}
		_ = conn.Close()
		fr.awaitIdle(t)
		if n := fr.metric(t, "spillway_passthrough_upgraded_connections"); n != 0 {
			t.Errorf("%v upgrades active after the end", n)
		}
		if n := fr.metric(t, "spillway_passthrough_requests_total", "code=101", "kind=connect"); n != 1 {
			t.Errorf("%v upgrades counted, want 1", n)
		}
	})
}

func TestUpgradeHalfClose(t *testing.T) {
	both(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, http.HandlerFunc(switching), o)
		conn, r, _ := fr.upgrade(t, "/x", spdy, "all of it")
		if err := conn.(clientconn.HalfCloser).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "all of it" {
			t.Errorf("read %q, %v after closing our side", got, err)
		}
	})
}

func TestUpgradeWebSocket(t *testing.T) {
	fr := newFront(t, http.HandlerFunc(switching), frontOptions{})
	conn, r, resp := fr.upgrade(t, "/api/v1/pods?watch=1",
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+
			"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io", "")
	if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" || resp.Header["Date"] != nil {
		t.Fatalf("got %d %v", resp.StatusCode, resp.Header) // upstream sends no date with a 101
	}
	// A masked text frame, then a masked close frame; the mask is zero, so the payload shows.
	frames := "\x81\x85\x00\x00\x00\x00hello" + "\x88\x82\x00\x00\x00\x00\x03\xe8"
	if _, err := io.WriteString(conn, frames); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(frames))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != frames {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUpgradeRefused(t *testing.T) {
	fr := newFront(t, http.HandlerFunc(switching), frontOptions{})
	_, _, resp := fr.upgrade(t, "/refused", spdy, "")
	if b, err := io.ReadAll(resp.Body); resp.StatusCode != 403 || err != nil || !strings.Contains(string(b), "no") {
		t.Errorf("got %d %q, %v; want upstream's 403", resp.StatusCode, b, err)
	}
}

func TestUpgradeEndsWithTheForwarder(t *testing.T) {
	fr := newFront(t, http.HandlerFunc(switching), frontOptions{})
	_, r, _ := fr.upgrade(t, "/x", spdy, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fr.forwarder.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("closing the forwarder: %v", err)
	}
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("the upgraded connection is still open")
	}
	fr.awaitIdle(t)
}
