package upstream

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"spillway/internal/object"
	"spillway/internal/upstream/transport"
)

// A redirect is not followed, neither with the proxy's credentials nor without, and its target gets
// no request. A request that passes through gets the redirect as it is.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		t.Errorf("it was followed to %s %s, with Authorization %q", r.Method, r.URL, r.Header["Authorization"])
		http.NotFound(w, r)
	}))
	defer trap.Close()
	info := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true, true)
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect} {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, trap.URL+r.URL.RequestURI(), code)
		}))
		cfg := &rest.Config{Host: up.URL, BearerToken: "ours"}
		c := clientFor(t, cfg)
		for what, ask := range map[string]func(ctx context.Context) error{
			"Check": c.Check,
			"Get": func(ctx context.Context) error {
				_, err := c.Get(ctx, GetRequestFor("list", info, metav1.ListOptions{}))
				return err
			},
			"Links": func(ctx context.Context) error {
				link, err := c.Links().Take()
				if err == nil {
					_, err = c.Revision(ctx, info, link, "probe")
				}
				return err
			},
			"discovery": func(context.Context) error {
				_, err := c.discovery.ServerResourcesForGroupVersion("v1")
				return err
			},
			"typed": func(ctx context.Context) error {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, up.URL+"/x", strings.NewReader("{}"))
				if err != nil {
					return err
				}
				response, err := c.HTTP().Do(r)
				if err == nil {
					_ = response.Body.Close()
				}
				return err
			},
		} {
			err := ask(deadline(t))
			if err == nil || !strings.Contains(err.Error(), "redirects to") || strings.Contains(err.Error(), "ours") {
				t.Errorf("%d: %s: %v; want an error that says what was not followed", code, what, err)
			}
		}
		c.Close()
		for name, make := range map[string]func(transport.Purpose) (http.RoundTripper, error){
			"bare": func(k transport.Purpose) (http.RoundTripper, error) { return c.transports.Bare(k) },
			"own":  c.transports.Own,
		} {
			for _, kind := range []transport.Purpose{transport.Passing, transport.PassingHTTP1, transport.PassingFresh} {
				rt, err := make(kind)
				if err != nil {
					t.Fatal(err)
				}
				r, err := http.NewRequestWithContext(deadline(t), http.MethodGet, up.URL+"/x", nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				if response.StatusCode != code || response.Header.Get("Location") != trap.URL+"/x" {
					t.Errorf("%s: %d to %q", name, response.StatusCode, response.Header.Get("Location"))
				}
				utilnet.CloseIdleConnectionsFor(rt)
			}
		}
		up.Close()
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}
