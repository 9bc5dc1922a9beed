package passthrough

import (
	"net/url"
	"strings"
	"testing"
)

func TestLocationsLeadBackThroughTheProxy(t *testing.T) {
	for _, tc := range []struct{ base, location, want string }{
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1/api/v1/pods?watch=1#x", "/api/v1/pods?watch=1#x"},
		{"https://h/k8s/clusters/c-1", "https://h/k8s/clusters/c-1/api", "/api"},
		{"https://h/k8s/clusters/c-1", "HTTPS://H:443/k8s/clusters/c-1/api", "/api"},
		{"https://h:443/k8s/clusters/c-1/", "//h/k8s/clusters/c-1/api", "/api"},
		{"https://h/k8s/clusters/c-1", "https://h/k8s/clusters/c-1", "/"},
		{"https://h/k8s/clusters/c-1", "https://h/k8s/clusters/c-1?x=1", "/?x=1"},
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1", "/"},
		{"https://h/a%2Fb", "/a%2Fb/c%2Fd", "/c%2Fd"},
		// The same path in another percent form. An encoded slash is another path than a slash.
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c%2D1/api/%7ex", "/api/%7ex"},
		{"https://h/k8s/clusters/c-1", "https://h/%6B8s/clusters/c-1/api", "/api"},
		{"https://h/k8s/c%2D1", "/k8s/c-1/api", "/api"},
		{"https://h/a%2Fb", "/a%2fb/c", "/c"},
		{"https://h/a%C3%A4", "/a%c3%a4/c", "/c"},
		{"https://h/a/b", "/a%2Fb/c", "https://h/a%2Fb/c"},
		{"https://h/a%2Fb", "/a/b/c", "https://h/a/b/c"},
		{"https://h/a%2541", "/a%41/c", "https://h/a%41/c"},
		// What is relative to the request is so for the client.
		{"https://h/k8s/clusters/c-1", "pods", "pods"},
		{"https://h/k8s/clusters/c-1", "../pods", "../pods"},
		{"https://h/k8s/clusters/c-1", "?x=1", "?x=1"},
		{"https://h/k8s/clusters/c-1", "", ""},
		// Another place is left as it is, and one that the client cannot reach through here is
		// named in full.
		{"https://h/k8s/clusters/c-1", "https://h/login", "https://h/login"},
		{"https://h/k8s/clusters/c-1", "/login?x=1", "https://h/login?x=1"},
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-10/api", "https://h/k8s/clusters/c-10/api"},
		{"https://h/k8s/clusters/c-1", "https://elsewhere/k8s/clusters/c-1/api", "https://elsewhere/k8s/clusters/c-1/api"},
		{"https://h/k8s/clusters/c-1", "http://h/k8s/clusters/c-1/api", "http://h/k8s/clusters/c-1/api"},
		{"https://h/k8s/clusters/c-1", "https://h:8443/k8s/clusters/c-1/api", "https://h:8443/k8s/clusters/c-1/api"},
		{"https://h/k8s/clusters/c-1", "https://u@h/k8s/clusters/c-1/api", "https://u@h/k8s/clusters/c-1/api"},
		{"https://h/k8s/clusters/c-1", "mailto:a@h", "mailto:a@h"},
		{"https://h/k8s/clusters/c-1", "https://h/%zz", "https://h/%zz"},
		// A path that climbs may lead out of the prefix, and what it leads to is not below it.
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1/../c-2/api", "https://h/k8s/clusters/c-1/../c-2/api"},
		{"https://h/k8s/clusters/c-1", "https://h/k8s/clusters/c-1/..", "https://h/k8s/clusters/c-1/.."},
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1/%2e%2E/api", "https://h/k8s/clusters/c-1/%2e%2E/api"},
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1/%252e./api", "https://h/k8s/clusters/c-1/%252e./api"},
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1/x%2f..%5c..;y/api", "https://h/k8s/clusters/c-1/x%2f..%5c..;y/api"},
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1/a..b?x=/../y#/../z", "/a..b?x=/../y#/../z"},
		// No path becomes a host.
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1//evil/x", "/.//evil/x"},
		{"https://h/k8s/clusters/c-1", "/k8s/clusters/c-1/\\evil/x", "/./\\evil/x"},
		{"https://h", "https://h//evil/x", "/.//evil/x"},
		// Without a path there is no prefix, but a host.
		{"https://h", "/api", "/api"},
		{"https://h", "//elsewhere/api", "//elsewhere/api"},
		{"https://h", "https://h/api", "/api"},
		{"http://[::1]:80", "http://[::1]/api", "/api"},
		{"http://h", "http://h:80", "/"},
	} {
		base, err := url.Parse(tc.base)
		if err != nil {
			t.Fatal(err)
		}
		if got := mapLocation(tc.location, base); got != tc.want {
			t.Errorf("%s below %s is %s, want %s", tc.location, tc.base, got, tc.want)
		}
	}
}

func TestCookiesAreOfThePathThatTheClientSees(t *testing.T) {
	for cookie, want := range map[string]string{
		"a=b; Path=/k8s/clusters/c-1; HttpOnly":   "a=b; Path=/; HttpOnly",
		"a=b;path= /k8s/clusters/c-1/api ;Secure": "a=b;path=/api;Secure",
		"a=b; Path=/":                        "a=b; Path=/",
		"a=b; Path=/k8s/clusters/c-10":       "a=b; Path=/k8s/clusters/c-10",
		"a=b; Path=/k8s/clusters/c-1/../c-2": "a=b; Path=/k8s/clusters/c-1/../c-2",
		"Path=/k8s/clusters/c-1; Path":       "Path=/k8s/clusters/c-1; Path",
		"a=b":                                "a=b",
		"":                                   "",
	} {
		if got := mapCookie(cookie, "/k8s/clusters/c-1"); got != want {
			t.Errorf("%q is %q, want %q", cookie, got, want)
		}
	}
}

// FuzzLocation: what was on another host stays there, and a path of the client's own host is one of
// upstream's.
func FuzzLocation(f *testing.F) {
	for _, seed := range []string{"/k/api", "https://h/k/api", "//h/k//evil", "https://h/k/\\evil", "/login", "../x",
		"https://evil/k", "https://h\\evil/k", "https://h?x", "/k/..//x"} {
		f.Add(seed)
	}
	base := &url.URL{Scheme: "https", Host: "h", Path: "/k"}
	f.Fuzz(func(t *testing.T, location string) {
		asked := &url.URL{Scheme: "https", Host: "h", Path: "/k/api/v1"}
		meant, err := url.Parse(location)
		if err != nil {
			if got := mapLocation(location, base); got != location {
				t.Errorf("%q became %q", location, got)
			}
			return
		}
		got := mapLocation(location, base)
		led, err := url.Parse(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", location, got, err)
		}
		from := (&url.URL{Scheme: "https", Host: "proxy", Path: "/api/v1"}).ResolveReference(led)
		to := asked.ResolveReference(meant)
		if from.Host != "proxy" && from.Host != to.Host {
			t.Errorf("%q leads to %s, and became %q, which leads to %s", location, to, got, from)
		}
		rooted := meant.Host != "" || strings.HasPrefix(location, "/") && !strings.HasPrefix(location, "//")
		rest, below := strings.CutPrefix(to.Path, "/k")
		if below = below && (rest == "" || rest[0] == '/'); from.Host == "proxy" && rooted && !below {
			t.Errorf("%q leads to %s, and became %q, which leads below the prefix", location, to, got)
		}
		if from.Host == "proxy" && to.Host != "h" && !isSameHost(to, base) {
			t.Errorf("%q leads to %s, and became %q, which leads to the proxy", location, to, got)
		}
	})
}
