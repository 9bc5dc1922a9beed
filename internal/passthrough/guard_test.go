package passthrough

import (
	"fmt"
	"strings"
	"testing"
)

func TestThePlainGuardRefusesForeignOrigins(t *testing.T) {
	guard := NewPlainGuard([]string{"Proxy.internal", "other:8001", "[fd00::1]", "fd00::0:2"},
		[]string{"https://Console.example"}, false)
	open := NewPlainGuard(nil, nil, true)
	f := func(g *PlainGuard, r PlainRequest, want string) {
		t.Helper()
		s := g.Refusal(r)
		switch {
		case want == "" && s != nil:
			t.Errorf("%+v: refused: %s", r, s.Message)
		case want != "" && (s == nil || s.Code != 403 || !strings.Contains(s.Message, want)):
			t.Errorf("%+v: %+v; want a refusal that names %s", r, s, want)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST:8001", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8001",
		"proxy.internal", "proxy.internal:80", "other:8001", "[fd00::1]:443", "[0:0:0:0:0:0:0:1]",
		"[0:0:0:0:0:0:0:1]:8001", "[::0001]", "[::ffff:127.0.0.1]:1", "[FD00:0::1]", "[fd00::2]"} {
		f(guard, PlainRequest{Host: host, Target: "/"}, "")
	}
	for _, host := range []string{"", "evil.example", "localhost.evil.example", "localhost.", "127.0.0.1.nip.io",
		"127.0.0.2", "::1", "other", "other:80", "localhost:", "localhost:x", "localhost:80:80", "[::1", "a@localhost",
		"0.0.0.0", "0:0:0:0:0:0:0:1", "[::2]", "[::1]]", "[[::1]]", "[::1%25lo]", "[127.0.0.1]",
		"[localhost]", "[::ffff:127.0.0.2]"} {
		f(guard, PlainRequest{Host: host, Target: "/"}, "--accept-hosts")
		f(guard, PlainRequest{Host: host, Target: "/"}, fmt.Sprintf("%q", host))
	}
	f(open, PlainRequest{Host: "proxy.internal", Target: "/"}, "--accept-hosts")

	local := func(target string) PlainRequest { return PlainRequest{Host: "localhost", Target: target} }
	with := func(r PlainRequest, origins ...string) PlainRequest { r.Origins = origins; return r }
	f(guard, with(local("/"), "https://console.example"), "")
	f(guard, with(local("/"), "https://console.example:444"), "--accept-origins")
	f(guard, with(local("/"), "http://console.example"), "http://console.example")
	f(guard, with(local("/"), "https://console.example", "https://evil.example"), "https://evil.example")
	f(guard, with(local("/"), "null"), "null")
	f(guard, with(local("/"), ""), "--accept-origins")
	f(guard, with(local("/"), "http://localhost:8001"), "--accept-origins")

	watch := func(host, target string, origins ...string) PlainRequest {
		return PlainRequest{Host: host, Method: "GET", Target: target, Upgrade: true, AsSelf: true, Origins: origins}
	}
	const pods = "/api/v1/pods?watch=1"
	f(guard, watch("127.0.0.1:8001", pods, "http://127.0.0.1:8001"), "")
	f(guard, watch("Localhost", "/api/v1/watch/pods", "http://localhost"), "")
	f(guard, watch("[::1]:8001", pods, "http://[::1]:8001"), "")
	f(guard, watch("evil.example:8001", pods, "http://evil.example:8001"), "--accept-hosts") // rebound
	for _, origin := range []string{"http://evil.example", "http://localhost:8001", "http://127.0.0.1", "null", "",
		"https://127.0.0.1:8001", "http://127.0.0.1:8001/", "http://127.0.0.1:8001.evil.example"} {
		f(guard, watch("127.0.0.1:8001", pods, origin), "--accept-origins")
	}
	f(guard, watch("127.0.0.1:8001", pods, "http://127.0.0.1:8001", "http://evil.example"), "--accept-origins")
	f(guard, watch("127.0.0.1:8001", pods, "http://127.0.0.1:8001", "http://127.0.0.1:8001"), "--accept-origins")
	for _, target := range []string{"/api/v1/pods", "/api/v1/namespaces/a/pods/b/exec?watch=1",
		"/api/v1/nodes/n/proxy/x"} {
		f(open, watch("127.0.0.1:8001", target, "http://127.0.0.1:8001"), "--accept-origins")
	}
	plain := watch("127.0.0.1:8001", pods, "http://127.0.0.1:8001")
	plain.Upgrade = false
	f(guard, plain, "--accept-origins")

	self := func(target string, upgrade bool) PlainRequest {
		return PlainRequest{Host: "localhost", Method: "GET", Target: target, AsSelf: true, Upgrade: upgrade}
	}
	for _, target := range []string{
		"/api/v1/namespaces/a/pods/b/exec?command=sh", "/api/v1/namespaces/a/pods/b/%65xec",
		"/api/v1/namespaces/a/pods/b%2Fexec",
		"/api/v1/namespaces/a/pods/b/portforward", "/api/v1/namespaces/a/pods/b/attach", "/api/v1/namespaces/a/pods/b/proxy/",
		"/api/v1/namespaces/a/services/https:b:443/proxy/x", "/api/v1/nodes/n/proxy/exec", "/api/v1/proxy/nodes/n",
		"//api/v1/nodes/n/proxy",
	} {
		for _, upgrade := range []bool{false, true} {
			f(guard, self(target, upgrade), "--listen-allow-connect")
			f(open, self(target, upgrade), "")
			f(guard, local(target), "")
		}
	}
	f(guard, self("/apis/subresources.kubevirt.io/v1/namespaces/a/vmis/b/console", true), "--listen-allow-connect")
	f(guard, self("/apis/subresources.kubevirt.io/v1/namespaces/a/vmis/b/console", false), "")
	f(guard, self("/api/v1/pods?watch=1", true), "")
	f(guard, self("/api/v1/namespaces/a/pods?watch=1", true), "")
	f(guard, self("/api/v1/watch/namespaces/a/pods", true), "")
	f(guard, self("/api/v1/watch/namespaces/a/pods/b", true), "")
	const vmi = "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/x"
	for _, target := range []string{
		vmi + "/console?watch=1", vmi + "/console?watch", vmi + "/vnc?a&watch=true", vmi + "%2Fconsole?watch=1",
		vmi + "%252Fconsole?watch=1", vmi + "?watch=1",
		vmi + "/console/?watch=1", "/x?watch=1", "/api/v1?watch=1",
		"/apis/subresources.kubevirt.io/v1/watch/namespaces/a/virtualmachineinstances/x/console",
		"/api/v1/namespaces/a?watch=1", "/api/v1/namespaces//pods?watch=1",
		"/api/v1/pods?watch=1" + strings.Repeat("&a", 10_001),
	} {
		f(guard, self(target, true), "an upgrade on path")
		f(open, self(target, true), "")
		f(guard, self(target, false), "")
		f(guard, PlainRequest{Host: "localhost", Method: "GET", Target: target, Upgrade: true}, "")
	}
	f(guard, PlainRequest{Host: "localhost", Method: "POST", Target: "/api/v1/pods?watch=1", AsSelf: true,
		Upgrade: true}, "an upgrade on path")
	f(guard, self("/api/v1/pods?watch=0", true), "--listen-allow-connect")
	f(guard, self("/api/v1/namespaces/a/pods/b/log?follow=1", false), "")
	f(guard, self("/api/v1/namespaces/a/configmaps/exec", false), "")
	f(guard, PlainRequest{Host: strings.Repeat("h", 1000), Target: "/"}, "…")
}
