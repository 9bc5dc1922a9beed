package discovery

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"spillway/internal/testutil"
	"spillway/internal/upstream"
	"spillway/internal/upstream/upstreamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var deadline = testutil.Deadline

// documents serves fixed JSON by path and 404 for everything else; the text 403 is that refusal.
func documents(t *testing.T, byPath map[string]string) *upstream.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := byPath[r.URL.Path]
		code := http.StatusOK
		switch {
		case !ok:
			code, text = http.StatusNotFound, "404 page not found"
		case text == "403":
			code, text = http.StatusForbidden,
				`{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return upstreamtest.NewClient(t, &rest.Config{Host: s.URL})
}
