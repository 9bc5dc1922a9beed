package upstream

import (
	"context"
	"net/http"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
)

// Silence begins with the first request that is not answered and ends with an answer, whatever it
// says.
func TestSilenceIsWhatNoApiserverAnswers(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	f := func(what string, silent bool) {
		t.Helper()
		_, _ = c.Version(deadline(t))
		if since := c.SilentSince(); since.IsZero() == silent || since.After(time.Now()) {
			t.Errorf("%s: silent since %v", what, since)
		}
		if cause := c.SilenceCause(); (cause == "") == silent {
			t.Errorf("%s: silent because of %q", what, cause)
		}
	}
	status := func(code int, contentType string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
		})
	}
	f("an answer", false)
	s.Handle("/version", status(http.StatusForbidden, "application/json"))
	f("a refusal", false)
	s.Handle("/version", status(http.StatusInternalServerError, "application/json"))
	f("the API server's own error", false)
	s.Handle("/version", status(http.StatusBadGateway, "text/html"))
	f("an error of a proxy in front of it", true)
	first := c.SilentSince()
	if cause := c.SilenceCause(); cause != "502 Bad Gateway" {
		t.Errorf("silent because of %q", cause)
	}
	f("another", true)
	if !c.SilentSince().Equal(first) {
		t.Error("silence begins again with each failure")
	}
	s.Handle("/version", nil)
	f("an answer again", false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = c.Version(ctx)
	if !c.SilentSince().IsZero() {
		t.Error("a request that was given up here counts")
	}
	s.Down()
	f("no connection", true)
}
