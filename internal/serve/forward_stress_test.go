package serve

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/passthrough"
)

func TestForwardEndsStalledClients(t *testing.T) {
	cancelled := make(chan struct{}, 1)
	fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1<<20))
		}
		cancelled <- struct{}{}
	}), frontOptions{mutate: func(o *passthrough.ForwarderOptions) { o.StallTimeout = 10 * time.Millisecond }})
	conn, _ := fr.dial(t)
	fmt.Fprint(conn, "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n") // and never reads
	await(t, cancelled, "the cancellation upstream")
	fr.awaitIdle(t)
}

// TestForwardMixedClients lets clients of all kinds come and leave at any moment: each gets its own
// answer, and in the end nothing is left in flight.
func TestForwardMixedClients(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, answers(), o)
		var clients sync.WaitGroup
		for seed := range uint64(8) {
			client := fr.client(t)
			clients.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, 0))
				for i := range 30 {
					body := fmt.Sprintf("%d-%d-%0*d", seed, i, rnd.IntN(20_000), 0)
					query := []string{"", "?watch=1"}[rnd.IntN(2)]
					if rnd.IntN(3) == 0 {
						leave(fr, query, body, rnd.IntN(200))
						continue
					}
					if err := echo(client, fr.url()+"/echo"+query, body); err != nil {
						t.Errorf("client %d, request %d: %v", seed, i, err)
						return
					}
				}
			})
		}
		clients.Wait()
		fr.awaitIdle(t)
	})
}

// echo sends body, chunked if its length is even, and checks that the answer repeats it.
func echo(c *http.Client, url, body string) error {
	var r io.Reader = strings.NewReader(body)
	length := len(body)
	if length%2 == 0 {
		r, length = io.MultiReader(r), -1
	}
	resp, err := c.Post(url, "text/plain", r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if want := fmt.Sprintf("POST %d %s", length, body); err == nil && string(got) != want {
		return fmt.Errorf("%d bytes came back, want %d", len(got), len(want))
	}
	return err
}

// leave sends the first n bytes of a request and goes.
func leave(f *front, query, body string, n int) {
	conn, err := dialFront(f)
	if err != nil {
		return
	}
	raw := fmt.Sprintf("POST /echo%s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", query, len(body), body)
	_, _ = io.WriteString(conn, raw[:min(n, len(raw))])
	_ = conn.Close()
}
