package serve

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"spillway/internal/clientconn"
	"spillway/internal/fakeapiserver"
)

// Every answer over TLS has the header once, whichever component makes it and whichever path it
// takes; answers over plain HTTP, or without directives, do not have it.
func TestStrictTransportSecurity(t *testing.T) {
	for _, directives := range [][]string{nil, {"max-age=31536000", "includeSubDomains"}} {
		up := fakeapiserver.New(fakeapiserver.Options{})
		fill(up)
		r := rigOf(t, up, rigOptions{strict: directives})
		want := strings.Join(directives, "; ")
		for _, way := range []struct {
			name, url string
			http2     bool
		}{{"plain", r.url, false}, {"TLS", r.tlsURL, false}, {"HTTP/2", r.tlsURL, true}} {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: way.http2}
			client := &http.Client{Transport: transport}
			for _, one := range []struct{ name, method, target, body string }{
				{"from memory", "GET", "/api/v1/configmaps?resourceVersion=0", ""},
				{"a refusal from memory", "GET", "/api/v1/configmaps?resourceVersion=x", ""},
				{"a watch", "GET", "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1", ""},
				{"passed through", "GET", "/api/v1/secrets", ""},
				{"passed through, not there", "GET", "/nowhere", ""},
				{"passed through, a watch", "GET", "/api/v1/secrets?watch=1&timeoutSeconds=1", ""},
				{"passed through, with a body", "POST", "/nowhere", "{}"},
				{"passed through, chunked", "POST", "/nowhere", "chunked"},
				{"refused", "GET", "/x", "hop"},
			} {
				var body io.Reader
				if one.body == "chunked" {
					body = io.MultiReader(strings.NewReader("{}"))
				} else if one.body != "" && one.body != "hop" {
					body = strings.NewReader(one.body)
				}
				request, err := http.NewRequestWithContext(deadline(t), one.method, way.url+one.target, body)
				if err != nil {
					t.Fatal(err)
				}
				if one.body == "hop" && !way.http2 {
					request.Header.Set("Connection", "Authorization")
				}
				response, err := client.Do(request)
				if err != nil {
					t.Fatalf("%s, %s: %v", way.name, one.name, err)
				}
				_ = response.Body.Close()
				got := response.Header[clientconn.StrictTransportSecurityHeader]
				if expected := way.name != "plain" && want != ""; expected != (len(got) == 1 && got[0] == want) || !expected &&
					len(got) > 0 {
					t.Errorf("%s, %s (%s): %q, want %v of %q", way.name, one.name, response.Status, got, expected, want)
				}
				if server := response.Header["Server"]; server != nil {
					t.Errorf("%s, %s: Server is %q", way.name, one.name, server)
				}
			}
			transport.CloseIdleConnections()
		}
	}
}

// What upstream itself says of it stays, and is not said twice. What ends at a proxy ends here, on
// every way and in what comes before an answer, too.
func TestForwardAnswerHeaders(t *testing.T) {
	hop := http.Header{
		"Connection": {"X-Hop, Keep-Alive"}, "X-Hop": {"secret"}, "Keep-Alive": {"timeout=5"}, "Proxy-Connection": {"close"},
		"Proxy-Authenticate": {"Basic"},
		"Te":                 {"trailers"}, "Upgrade": {"h2c"},
	}
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for key, values := range hop {
			w.Header()[key] = values
		}
		if r.URL.Query().Has("hints") {
			w.Header().Set("Link", "</x>")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set(clientconn.StrictTransportSecurityHeader, "max-age=1")
		w.Header().Set("X-End", "to end")
		_, _ = io.WriteString(w, "ok")
	})
	every(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, upstream, o)
		client := fr.client(t)
		for _, target := range []string{"/x", "/x?hints", "/x?watch=1", "/x?watch=1&hints"} {
			for _, body := range []string{"", "a body"} {
				method := http.MethodGet
				var from io.Reader
				if body != "" {
					method, from = http.MethodPost, io.MultiReader(strings.NewReader(body))
				}
				request, err := http.NewRequestWithContext(deadline(t), method, fr.url()+target, from)
				if err != nil {
					t.Fatal(err)
				}
				var early []http.Header
				request = request.WithContext(earlyHints(request.Context(), &early))
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				for _, h := range append(early, response.Header) {
					for key := range hop {
						if values := h[key]; values != nil && (key != "Connection" || values[0] != "close") {
							t.Errorf("%s %s: %s: %q got through", method, target, key, values)
						}
					}
				}
				if h := response.Header; response.StatusCode != http.StatusOK || h.Get("X-End") == "" ||
					len(h[clientconn.StrictTransportSecurityHeader]) != 1 ||
					h.Get(clientconn.StrictTransportSecurityHeader) != "max-age=1" {
					t.Errorf("%s %s: %s %v", method, target, response.Status, h)
				}
			}
		}
	})
}

// earlyHints notes what comes before an answer.
func earlyHints(ctx context.Context, to *[]http.Header) context.Context {
	return httptrace.WithClientTrace(
		ctx, &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			*to = append(*to, http.Header(h))
			return nil
		}})
}
