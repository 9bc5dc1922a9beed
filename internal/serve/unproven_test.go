package serve

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// Connections that have proven nothing keep no other out, whatever their clients do: take no byte
// of a short answer over HTTP/2, or of a request that lasts over HTTP/1.1. Other clients connect,
// and get 200; those with proven connections keep them.
func TestUnprovenConnectionsKeepNoneOut(t *testing.T) {
	t.Parallel()
	const limit, attackers, requests = 20, 46, 60
	for name, attack := range map[string]func(r *rig) error{
		"short answers that are not taken": func(r *rig) error {
			conn, err := tls.Dial("tcp", strings.TrimPrefix(r.tlsURL, "https://"), &tls.Config{InsecureSkipVerify: true,
				NextProtos: []string{"h2"}}) //nolint:gosec // a throw-away certificate
			if err != nil {
				return err
			}
			r.t.Cleanup(func() { _ = conn.Close() })
			raw := &rawHTTP2{t: r.t, framer: http2.NewFramer(conn, conn)}
			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				return err
			}
			raw.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			raw.ask(1, "/answer", "")
			raw.until("HEADERS", 1)
			return nil
		},
		"requests that last": func(r *rig) error {
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				return err
			}
			r.t.Cleanup(func() { _ = conn.Close() })
			_, err = io.WriteString(conn, "GET /lasts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody's\r\n\r\n")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := knows(t, rigOptions{connections: limit})
			r.server.conns.AdmitAtOnce()
			r.up.Handle("/answer", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") }))
			over := make(chan struct{})
			t.Cleanup(func() { close(over) }) // before the rig's
			r.up.Handle("/lasts", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-over:
				case <-r.Context().Done():
				}
			}))
			proven := dialHTTP2(t, r, nil)
			proven.settings()
			proven.ask(1, "/lasts", "good")
			proven.until("WINDOW_UPDATE", 0)
			for range attackers {
				if err := attack(r); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "every attacker to have been accepted", func() bool {
				return r.metric("spillway_evicted_connections_total") >= attackers+1-limit
			})
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a throw-away certificate
			for i := range requests {
				request, err := http.NewRequestWithContext(deadline(t), "GET", r.tlsURL+"/answer", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Authorization", "Bearer good")
				response, err := client.Do(request)
				if err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK {
					t.Fatalf("request %d: %s", i, response.Status)
				}
			}
			proven.ask(3, "/answer", "good")
			proven.until("HEADERS", 3)
		})
	}
}
