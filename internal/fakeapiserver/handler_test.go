package fakeapiserver

import (
	"net/http"
	"strings"
	"testing"

	"spillway/internal/fakeapiserver/rawclient"
)

func TestOnlyReadsAreAllowed(t *testing.T) {
	s := server(t, Options{})
	s.Create(ConfigMaps, "n", "a")
	const maps = "/api/v1/namespaces/n/configmaps"
	client := s.Client()
	defer client.CloseIdleConnections()
	for _, tt := range []struct{ method, path string }{
		{"PUT", maps}, {"POST", maps}, {"POST", maps + "/a"}, {"PATCH", maps + "/a"}, {"DELETE", maps + "/a"},
		{"OPTIONS", maps}, {"HEAD", maps}, {"GET", maps + "/a/scale"},
	} {
		r, err := http.NewRequestWithContext(deadline(t), tt.method, s.URL+tt.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %s", tt.method, tt.path, response.Status)
		}
	}
	wantStatus(t, get(t, s, maps+"/a/scale"), 405, "the server does not allow this method on the requested resource")
}

func TestHandle(t *testing.T) {
	s := server(t, Options{})
	s.Handle("/apis/authentication.k8s.io/",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if l := get(t, s, "/apis/authentication.k8s.io/v1/tokenreviews",
		rawclient.Header("Impersonate-User", "u")); l.Status != http.StatusTeapot {
		t.Errorf("got %d", l.Status)
	}
	if r := s.Requests(); len(r) != 1 || r[0].Header.Get("Impersonate-User") != "u" {
		t.Errorf("log: %+v", r)
	}
}
