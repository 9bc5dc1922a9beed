package serve

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"

	"spillway/internal/http1"
	"spillway/internal/passthrough"
)

func TestStreamedStreamsAnswers(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		next, gone := make(chan string), make(chan struct{})
		fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for {
				_ = http.NewResponseController(w).Flush()
				select {
				case event := <-next:
					_, _ = io.WriteString(w, event)
				case <-r.Context().Done():
					gone <- struct{}{}
					return
				}
			}
		}), o)
		// "slow" is a stream that does not look like one.
		for _, target := range []string{"/x?watch=true", "/x?slow", "/api/v1/watch/pods"} {
			resp, err := fr.client(t).Get(fr.url() + target) // the head comes before the first event
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				event := fmt.Sprintf("event %d\n", i)
				next <- event
				got := make([]byte, len(event))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event {
					t.Fatalf("%s: got %q, %v; want %q before the next event is written", target, got, err, event)
				}
			}
			_ = resp.Body.Close()
			await(t, gone, "the cancellation upstream")
		}
	})
}

func TestStreamedLargeBodies(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sum := sha256.New()
			n, err := io.Copy(sum, r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			fmt.Fprintf(w, "%d %d %x", r.ContentLength, n, sum.Sum(nil))
		}), o)
		body := make([]byte, 8<<20)
		_, _ = rand.NewChaCha8([32]byte{}).Read(body)
		client := fr.client(t)
		for _, tc := range []struct {
			size    int
			chunked bool
		}{{8 << 20, false}, {8 << 20, true}, {passthrough.OwnedBodyLimit + 1, false}, {passthrough.OwnedBodyLimit, false},
			{100, true}, {http1.PrefetchBytesLimit, false}, {0, true}} {
			b := body[:tc.size]
			req, err := http.NewRequest("PUT", fr.url()+"/x", bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			length := tc.size
			if tc.chunked {
				req.Body, req.ContentLength, length = io.NopCloser(bytes.NewReader(b)), -1, -1
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%+v: %v", tc, err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if want := fmt.Sprintf("%d %d %x", length, tc.size, sha256.Sum256(b)); err != nil || string(got) != want {
				t.Errorf("%+v: %d %q, %v; want %q", tc, resp.StatusCode, got, err, want)
			}
		}
	})
}

func TestStreamedAnswerBeforeTheBodyIsRead(t *testing.T) {
	fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}), frontOptions{})
	for _, size := range []int{100, passthrough.OwnedBodyLimit, 2 << 20} {
		for range 5 {
			conn, r := fr.dial(t)
			fmt.Fprintf(conn, "PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size)
			go func() { _, _ = conn.Write(make([]byte, size)) }() // fails or not: the answer is what counts
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Fatalf("%d bytes: %v, %v; want 413", size, resp, err)
			}
			_ = conn.Close()
		}
	}
}

func TestStreamedExpectContinue(t *testing.T) {
	fr := newFront(t, answers(), frontOptions{})
	for _, framing := range []string{"Content-Length: 5", "Transfer-Encoding: chunked"} {
		conn, r := fr.dial(t)
		fmt.Fprintf(conn, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n%s\r\n\r\n", framing)
		if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("%s: %q, %v", framing, line, err)
		}
		if line, err := r.ReadString('\n'); err != nil || line != "\r\n" {
			t.Fatalf("%s: %q, %v", framing, line, err)
		}
		body := "hello"
		if framing != "Content-Length: 5" {
			body = "5\r\nhello\r\n0\r\n\r\n"
		}
		fmt.Fprint(conn, body)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.HasSuffix(got, []byte(" hello")) {
			t.Errorf("%s: %q, %v", framing, got, err)
		}
	}
}

func TestStreamedServesOneRequestPerConnection(t *testing.T) {
	fr := newFront(t, answers(), frontOptions{})
	conn, r := fr.dial(t)
	// A watch and, behind it, a request that must not pass by the handler's checks.
	fmt.Fprint(conn, "GET /small?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if !resp.Close {
		t.Error("the answer does not announce the end of the connection")
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("a second answer came: %q", rest)
	}
}

func TestStreamedHTTP10(t *testing.T) {
	fr := newFront(t, answers(), frontOptions{})
	conn, r := fr.dial(t)
	fmt.Fprint(conn, "GET /large HTTP/1.0\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 300_000 || len(resp.TransferEncoding) > 0 {
		t.Errorf("%d bytes, %v, coding %v; want 300000 plain bytes", len(b), err, resp.TransferEncoding)
	}
}
