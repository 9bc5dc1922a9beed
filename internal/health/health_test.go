package health

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// get answers a GET from handler.
func get(handler http.Handler, target string) (code int, body string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w.Code, w.Body.String()
}

func TestProbes(t *testing.T) {
	podsErr := errors.New("still listing:\nconnection refused")
	h := &Checks{}
	h.Require("pods", func() (string, error) { return "3 objects at resourceVersion 17", podsErr })
	h.Require("upstream", func() (string, error) { return "", nil })
	handler := http.NewServeMux()
	handler.HandleFunc("GET /livez", h.ServeLive)
	handler.HandleFunc("GET /readyz", h.ServeReady)
	f := func(target string, wantCode int, wantBody string) {
		t.Helper()
		if code, body := get(handler, target); code != wantCode || body != wantBody {
			t.Errorf("GET %s = %d\n%s\nwant %d\n%s", target, code, body, wantCode, wantBody)
		}
	}
	f("/livez", 200, "ok")
	f("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n")
	f("/readyz", 500, "[+]shutdown ok\n[-]pods failed: still listing: connection refused\n[+]upstream ok\nreadyz check "+
		"failed\n")

	podsErr = nil
	f("/readyz", 200, "ok")
	f("/readyz?verbose", 200,
		"[+]shutdown ok\n[+]pods ok: 3 objects at resourceVersion 17\n[+]upstream ok\nreadyz check passed\n")

	h.Describe(func() []string { return []string{"[!]mirror widgets refused for 3s"} })
	h.Require("apiserver", func() (string, error) { return "", Warning("away") })
	f("/readyz", 200, "ok")
	f("/readyz?verbose", 200,
		"[+]shutdown ok\n[+]pods ok: 3 objects at resourceVersion 17\n[+]upstream ok\n[!]apiserver: away\n"+
			"[!]mirror widgets refused for 3s\nreadyz check passed\n")
	if err := h.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}

	h.Drain()
	h.Drain()
	f("/readyz?verbose", 500,
		"[-]shutdown failed: draining before the process ends\n[+]pods ok: 3 objects at resourceVersion 17\n"+
			"[+]upstream ok\n[!]apiserver: away\n[!]mirror widgets refused for 3s\nreadyz check failed\n")
	if err := h.Ready(); !errors.Is(err, errDraining) {
		t.Errorf("ready while draining: %v", err)
	}
	f("/livez", 200, "ok")
}
