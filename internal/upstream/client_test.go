package upstream

import (
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream/transport"
)

func TestCheck(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{TLS: true})
	if err := c.Check(deadline(t)); err != nil {
		t.Error(err)
	}
	if v, err := c.Version(deadline(t)); err != nil || v.GitVersion != "v1.37.1" {
		t.Errorf("%v, %v", v, err)
	}
	f := func(name string, c *Client, parts ...string) {
		t.Helper()
		err := c.Check(deadline(t))
		if err == nil {
			t.Errorf("%s: no error", name)
			return
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", name, err, part)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is more than a line", name, err)
		}
	}
	f("unknown authority", clientFor(t, &rest.Config{Host: s.URL}), "certificate")
	s.Handle("/version", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	f("unauthorized", c, "401", "credentials")
	s.Handle("/version", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>"))
	}))
	f("something else", c, "text/html", "kube-apiserver")
	s.Down()
	f("down", c, "cannot be reached", "refused")
}

func TestClientSendsCredentials(t *testing.T) {
	s := fakeapiserver.New(fakeapiserver.Options{})
	defer s.Close()
	cfg := s.Config()
	cfg.BearerToken, cfg.UserAgent = "secret", "spillway/v1"
	c := clientFor(t, cfg)
	if _, err := c.Version(deadline(t)); err != nil {
		t.Fatal(err)
	}
	r := s.Requests()[0]
	if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("User-Agent") != "spillway/v1" ||
		r.Header.Get("Accept") != "application/json" {
		t.Errorf("headers %v", r.Header)
	}
	if agent := clientFor(t, s.Config()).Config().UserAgent; !strings.HasPrefix(agent, "spillway/") {
		t.Errorf("default agent %q", agent)
	}
	transports, err := transport.New(transport.ConfigSource{Config: &rest.Config{Host: "http://a b"}}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(transports); err == nil {
		t.Error("a malformed address was taken")
	}
}

// An identity that upstream does not say is described by the reason.
func TestIdentityThatIsRefusedIsUnknown(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	s.Handle("/apis/authentication.k8s.io/v1/selfsubjectreviews", answering(http.StatusForbidden))
	if got := c.DescribeIdentity(deadline(t)); got != "unknown (the API server answered 403 Forbidden)" {
		t.Errorf("identity = %q", got)
	}
}
