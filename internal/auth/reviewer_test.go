package auth

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// The log records once that reviews fail, and once that they succeed again. Neither the log nor the
// error contains the token.
func TestReviewerLogs(t *testing.T) {
	w := newWorld(t)
	core, logs := observer.New(zap.InfoLevel)
	base, err := url.Parse(w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.asks = NewReviewer(base, w.own, zap.New(core))
	a := w.authenticator()
	const token = "very-secret"
	check := func(code int, wantLines int) {
		t.Helper()
		w.reviews.Fail(code)
		w.clock.Step(FailureTTL)
		if r := a.Authenticate(w.ctx(), withToken(token)); r.Err != nil && strings.Contains(r.Err.Error(), token) {
			t.Errorf("%d: the error has the token: %v", code, r.Err)
		}
		if logs.Len() != wantLines || strings.Contains(fmt.Sprint(logs.All()), token) {
			t.Errorf("%d: %d lines, want %d: %v", code, logs.Len(), wantLines, logs.All())
		}
	}
	check(0, 0)
	check(503, 1)
	check(500, 1) // nothing new
	check(403, 2) // it answers, and denies
	check(401, 2)
	check(0, 3)
	check(400, 3) // may be about this question alone
	check(429, 4)
	for i, names := range []bool{false, true, false, false} { // the role only where it is missing
		if got := strings.Contains(logs.All()[i].Message, "system:auth-delegator"); got != names {
			t.Errorf("line %d: %s", i, logs.All()[i].Message)
		}
	}
	for _, code := range []int{400, 403, 500} { // and an API server that repeats what it was sent
		w.server.Handle(tokenReviewsPath, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(code)
			fmt.Fprintf(rw, `{"kind":"Status","message":"what is %s?"}`, token)
		}))
		w.clock.Step(FailureTTL)
		if r := a.Authenticate(w.ctx(), withToken(token)); r.Outcome != Unknown || strings.Contains(r.Err.Error(), token) {
			t.Errorf("%d: %q: %v", code, seen(r), r.Err)
		}
	}
}

// The log conceals a token that the API server repeats, also while it writes the line.
func TestReviewerLogsNoTokenThatUpstreamRepeats(t *testing.T) {
	w := newWorld(t)
	var log strings.Builder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log), zap.InfoLevel)
	base, err := url.Parse(w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.asks = NewReviewer(base, w.own, zap.New(core))
	const token = "very-secret"
	w.server.Handle(tokenReviewsPath, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(rw, `{"kind":"Status","message":"what is %s?"}`, token)
	}))
	w.authenticator().Authenticate(w.ctx(), withToken(token))
	if line := log.String(); strings.Contains(line, token) || !strings.Contains(line, concealed) {
		t.Errorf("logged %s", line)
	}
}
