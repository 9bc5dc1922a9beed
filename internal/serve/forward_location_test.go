package serve

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"spillway/internal/passthrough"
)

// U10: below a path, a redirect led to that path twice. On every way through it is followed to
// where upstream meant.
func TestRedirectsBelowAPathAreFollowed(t *testing.T) {
	const prefix = "/k8s/clusters/c-1"
	for _, o := range []frontOptions{{}, {http2: true}} {
		for _, absolute := range []bool{false, true} {
			up := http.NewServeMux()
			up.HandleFunc(prefix+"/api/old", func(w http.ResponseWriter, r *http.Request) {
				to := prefix + "/api/new?x=1"
				if absolute {
					to = "http://" + r.Host + to
				}
				http.SetCookie(w, &http.Cookie{Name: "a", Value: "b", Path: prefix + "/api"})
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusTemporaryRedirect)
			})
			up.HandleFunc(prefix+"/api/new", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
				_, _ = io.WriteString(w, r.URL.RawQuery)
			})
			o.mutate = func(f *passthrough.ForwarderOptions) {
				f.Base = &url.URL{Scheme: f.Base.Scheme, Host: f.Base.Host, Path: prefix}
			}
			fr := newFront(t, up, o)
			client, base := fr.client(t), fr.url()
			client.CheckRedirect = nil
			for what, body := range map[string]io.Reader{
				"a short request": nil, "a body": strings.NewReader("y"),
				"a stream": struct{ io.ReadSeeker }{strings.NewReader("y")},
			} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/old", body)
				if err != nil {
					t.Fatal(err)
				}
				if body != nil {
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("y")), nil }
				}
				response, err := client.Do(req)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				text, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK || !strings.HasSuffix(string(text), "x=1") {
					t.Errorf("%s, over HTTP/2 %t, absolute %t: %d at %s: %s", what, o.http2, absolute,
						response.StatusCode, response.Request.URL, text)
				}
				first := response.Request.Response
				if first == nil || !strings.Contains(first.Header.Get("Set-Cookie"), "Path=/api") {
					t.Errorf("%s: it was not redirected, or with another cookie: %v", what, first)
				}
			}
		}
	}
}
