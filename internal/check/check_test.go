package check

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a server that answers paths with texts, as the API server does if they are not from
// memory, and the rest with 404.
type answers map[string]string

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := a[r.Method+" "+r.URL.Path]
	var code int
	switch {
	case !ok:
		code, text = http.StatusNotFound, `{"message":"there is\nno such thing"}`
	case strings.HasPrefix(text, "!"):
		_, _ = fmt.Sscanf(text, "!%d", &code)
		text = strings.TrimLeft(text, "!0123456789 ")
	default:
		code = http.StatusOK
	}
	if text, ok = strings.CutPrefix(text, "upstream "); ok {
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "1")
	}
	if r.URL.Path == "/apis/apps/v1/deployments" &&
		r.URL.RawQuery != "resourceVersion=0&fieldSelector=metadata.name%3Dspillway-check" {
		code = http.StatusBadRequest
	}
	w.WriteHeader(code)
	fmt.Fprint(w, text)
}

// run returns what is printed, and the error.
func run(t *testing.T, a http.Handler, token string, resources ...string) (string, error) {
	t.Helper()
	server := httptest.NewServer(a)
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	err = (&Checker{Server: Endpoint{"--server", base, transport, token}}).Run(t.Context(), resources, &out)
	if err != nil {
		err = fmt.Errorf("%s", strings.TrimPrefix(err.Error(), server.URL+": "))
	}
	return out.String(), err
}

func good() answers {
	return answers{
		"GET /livez": "ok", "GET /readyz": "ok", "GET /version": `upstream {"gitVersion":"v1.37.0"}`,
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews": `{"status":{"userInfo":{"username":"me\u001b"}}}`,
		"GET /apis/apps":                      `upstream {"preferredVersion":{"version":"v1"}}`,
		"GET /apis/apps/v1/deployments":       `{"metadata":{"resourceVersion":"7"}}`,
		"GET /api/v1/pods":                    `{"metadata":{"resourceVersion":"8"}}`,
		"GET /apis/example.com/v1beta1/gears": `{"metadata":{"resourceVersion":"9"}}`,
	}
}

// refusing refuses connections as often as it says.
type refusing struct {
	http.RoundTripper
	times int
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.times--; r.times >= 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return r.RoundTripper.RoundTrip(req)
}

// Refused connections are tried again; without patience the first one counts.
func TestRefusedAtFirst(t *testing.T) {
	server := httptest.NewServer(good())
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for patience, ok := range map[time.Duration]bool{0: false, time.Minute: true} {
		c := &Checker{Server: Endpoint{"--server", base, &refusing{transport, 2}, ""}, Patience: patience}
		var out strings.Builder
		if err := c.Run(t.Context(), nil, &out); (err == nil) != ok ||
			strings.Count(out.String(), "waits   /livez: "+base.Host+" refuses connections: trying for 1m0s\n") !=
				map[bool]int{false: 0, true: 1}[ok] {
			t.Errorf("with a patience of %v: %v: %s", patience, err, &out)
		}
	}
}

func TestGood(t *testing.T) {
	if out, err := run(t, good(), ""); err != nil || out != "ok      /livez: 200\nok      /readyz: 200\n" {
		t.Errorf("%v: %s", err, out)
	}
	for resource, version := range map[string]string{"deployments.apps": "7", "deployments.v1.apps": "7", "pods": "8",
		"pods.v1.": "8", "pods.v1": "8", "gears.v1beta1.example.com": "9"} {
		out, err := run(t, good(), "a", resource)
		want := "ok      LIST " + resource + ": from memory, at resourceVersion " + version + "\n"
		if err != nil || !strings.HasSuffix(out, want) ||
			!strings.Contains(out, "ok      /version: v1.37.0\nok      user: me") || strings.Contains(out, "\x1b") {
			t.Errorf("%s: %v: %q", resource, err, out)
		}
	}
}

// Where the API server marks none of its answers, their origin is unknown.
func TestUnmarked(t *testing.T) {
	unmarked := good()
	unmarked["GET /version"] = `{"gitVersion":"v1.37.0"}`
	if out, err := run(t, unmarked, "", "pods"); err != nil ||
		!strings.Contains(out, "unknown LIST pods: at resourceVersion 8, but maybe not from memory, because the API server "+
			"marks none of its own answers") {
		t.Errorf("%v: %s", err, out)
	}
}

// If /version fails, it is unknown whether the API server marks its answers.
func TestOriginIsUnknownWithoutVersion(t *testing.T) {
	for _, version := range []string{"!500 broken", "upstream !500 broken", "hello", "{}", "upstream {}"} {
		a := good()
		a["GET /version"] = version
		const want = "unknown LIST pods: at resourceVersion 8, but maybe not from memory, because /version failed\n"
		if out, err := run(t, a, "", "pods"); err == nil || !strings.HasSuffix(out, want) {
			t.Errorf("%s: %v: %s", version, err, out)
		}
	}
}

// answerLate answers a request after a time.
type answerLate struct {
	http.RoundTripper
	after time.Duration
}

func (a answerLate) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(a.after)
	return a.RoundTripper.RoundTrip(r)
}

// answerDirectly answers requests by a handler, without a connection.
type answerDirectly struct{ http.Handler }

func (a answerDirectly) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w.Result(), nil
}

// A check whose answer is late says that it waits, and then what came.
func TestLateAnswersAreAnnounced(t *testing.T) {
	for after, want := range map[time.Duration]string{
		time.Second:     "ok      /livez: 200\n",
		3 * time.Second: "waits   /livez: no answer yet, for at most 10s\nok      /livez: 200\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			server := Endpoint{"--server", &url.URL{Scheme: "http", Host: "spillway"},
				answerLate{answerDirectly{good()}, after}, ""}
			if err := (&Checker{Server: server}).Run(t.Context(), nil, &out); err != nil ||
				!strings.HasPrefix(out.String(), want) {
				t.Errorf("after %s: %v\n%s", after, err, &out)
			}
		})
	}
}

// A failure is one line with a remedy, and does not keep the other requests from being sent.
func TestBad(t *testing.T) {
	f := func(path, answer, want string) {
		t.Helper()
		a := good()
		a[path] = answer
		out, err := run(t, a, "a", "deployments.apps")
		if err == nil || !strings.HasPrefix(err.Error(), "1 of 5 checks failed") ||
			strings.Count(out, "ok ")+strings.Count(out, "unknown ") != 4 || strings.Count(out, "FAILED  "+want) != 1 ||
			strings.Count(out, "\n") != 5 {
			t.Errorf("%v: %s", err, out)
		}
	}
	f("GET /livez", "!500 broken", "/livez: 500 broken: its log says more")
	f("GET /readyz", "!429 later", "/readyz: 429 later: it is starting or has too much to do: try again")
	f("GET /version", "hello", "/version: the answer is not what a Kubernetes API gives (")
	f("GET /version", "{}", "/version: the answer names no version: is --server a spillway?")
	f("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "{}", "user: the answer names no user")
	f("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", `!401 {"message":"Unauthorized"}`,
		"user: 401 Unauthorized: give in --token-file a valid token of this cluster")
	f("GET /apis/apps", `!404 {"message":"there is\nno such thing"}`,
		"LIST deployments.apps: 404 there is no such thing: see that the API server has this")
	f("GET /apis/apps/v1/deployments", `!403 {"message":"no"}`,
		"LIST deployments.apps: 403 no: allow the user of the token to do this")
	f("GET /apis/apps/v1/deployments", "{}", "LIST deployments.apps: the answer is no list")
	f("GET /apis/apps/v1/deployments", `upstream {"metadata":{"resourceVersion":"7"}}`,
		"LIST deployments.apps: not from memory but from the API server: have --resources")
}

// Without a token, the remedy for a refusal is a token. What is refused to Spillway's own token is
// named by Spillway.
func TestRefusalsOfUsersNameTheRemedy(t *testing.T) {
	a := good()
	a["GET /api/v1/pods"] = `!403 {"message":"no"}`
	out, err := run(t, a, "", "pods")
	if want := "LIST pods: 403 no: no token was sent: name a file with one in --token-file\n"; err == nil ||
		!strings.HasSuffix(out, want) || strings.Contains(out, "the user of the token") {
		t.Errorf("%v: %s", err, out)
	}
	a["GET /readyz"] = "[+]shutdown ok\n[!]mirror pods refused for 3s: no; give Spillway a ClusterRole\n"
	server := httptest.NewServer(a)
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	checker := &Checker{Server: Endpoint{"--server", base, transport, "mine"},
		Health: &Endpoint{Flag: "--health", Base: base, Transport: transport}}
	const want = "LIST pods: 403 no: if the token is Spillway's own, /readyz?verbose, above, names the missing role; " +
		"otherwise allow the user"
	if err := checker.Run(t.Context(), []string{"pods"}, &text); err == nil || !strings.Contains(text.String(), want) {
		t.Errorf("%v: %s", err, text.String())
	}
}

// A group without a preferred version is no group of an API server: nothing is listed of it.
func TestAGroupWithoutAPreferredVersion(t *testing.T) {
	a := good()
	a["GET /apis/apps"] = "{}"
	out, err := run(t, a, "", "deployments.apps")
	const want = "FAILED  LIST deployments.apps: the answer names no version of apps: is --server a spillway?\n"
	if err == nil || !strings.HasSuffix(out, want) {
		t.Errorf("%v: %s", err, out)
	}
}

// Each success is shown with its own code.
func TestTheCodeOfAProbeIsShown(t *testing.T) {
	a := good()
	a["GET /livez"] = "!204"
	if out, err := run(t, a, ""); err != nil || out != "ok      /livez: 204\nok      /readyz: 200\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// A resource that the API server does not serve has the names of those that may be meant, whether
// the user would be allowed to list it or not.
func TestUnknownResourcesHaveSuggestions(t *testing.T) {
	const core = `{"items":[{"metadata":{},"versions":[{"resources":[
		{"resource":"pods","singularResource":"pod","shortNames":["po"]},
		{"resource":"configmaps","singularResource":"configmap"}]}]}]}`
	const groups = `{"items":[{"metadata":{"name":"apps"},"versions":[{"resources":[
		{"resource":"deployments","singularResource":"deployment","shortNames":["deploy"]}]}]}]}`
	for resource, want := range map[string]string{
		"pod": "did you mean pods?", "po": "did you mean pods?", "poods": "did you mean pods?",
		"deploy.apps": "did you mean deployments.apps?", "deployments": "did you mean deployments.apps?",
		"xylophones": "kubectl api-resources lists them",
	} {
		for _, answer := range []string{`!404 {"message":"no"}`, `!403 {"message":"no"}`} {
			a := good()
			a["GET /api"], a["GET /apis"] = core, groups
			name, _, isGrouped := strings.Cut(resource, ".")
			a["GET /api/v1/"+name] = answer
			if isGrouped {
				a["GET /apis/apps/v1/"+name] = answer
			}
			out, err := run(t, a, "a", resource)
			line := fmt.Sprintf("FAILED  LIST %s: the API server serves no resource %q: %s\n", resource, resource, want)
			if err == nil || !strings.HasSuffix(out, line) {
				t.Errorf("%s %s: %v: %s", resource, answer, err, out)
			}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Where names cannot be looked up there is one answer, which says so, to all requests.
func TestNamesAreNotKnown(t *testing.T) {
	for want, cause := range map[string]*net.DNSError{
		"/livez: names cannot be looked up (lookup spillway.team.svc on 10.96.0.10:53: i/o timeout): see that the " +
			"cluster's DNS works": {
			Err: "i/o timeout", Name: "spillway.team.svc", Server: "10.96.0.10:53", IsTimeout: true,
		},
		"/livez: the name spillway.team.svc is not known (lookup spillway.team.svc: no such host): see that --server names " +
			"the Service": {
			Err: "no such host", Name: "spillway.team.svc", IsNotFound: true,
		},
	} {
		asked := 0
		transport := roundTripper(func(*http.Request) (*http.Response, error) {
			asked++
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: cause}
		})
		var out strings.Builder
		err := (&Checker{
			Server: Endpoint{"--server", &url.URL{Scheme: "https", Host: "spillway.team.svc"}, transport, "a"},
		}).Run(t.Context(), []string{"pods"}, &out)
		if err == nil || !strings.Contains(out.String(), want) || asked != 1 ||
			strings.Count(out.String(), "FAILED") != 1 || !strings.HasSuffix(out.String(), "no other request is sent\n") {
			t.Errorf("asked %d times: %v\n%s", asked, err, &out)
		}
	}
}

// If the name in --health cannot be resolved, only the check of the metrics listener fails.
func TestOtherChecksGoOnIfTheNameOfHealthIsNotKnown(t *testing.T) {
	server := httptest.NewServer(good())
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	unresolved := roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
			Err: "no such host", Name: "metrics.team.svc", IsNotFound: true,
		}}
	})
	var out strings.Builder
	err = (&Checker{
		Server: Endpoint{"--server", base, transport, "a"},
		Health: &Endpoint{Flag: "--health", Base: &url.URL{Scheme: "https", Host: "metrics.team.svc"}, Transport: unresolved},
	}).Run(t.Context(), []string{"pods"}, &out)
	const want = `ok      /livez: 200
ok      /readyz: 200
ok      /version: v1.37.0
ok      user: me�
FAILED  /readyz?verbose: the name metrics.team.svc is not known (lookup metrics.team.svc: no such host): see that ` +
		`--health names the Service and its namespace, and that the cluster's DNS knows it
ok      LIST pods: from memory, at resourceVersion 8
`
	if err == nil || out.String() != want {
		t.Errorf("%v: %s", err, &out)
	}
}

// Each resource is listed, and what the proxy says of itself is the cause of what is not from
// memory.
func TestHealthNamesTheCause(t *testing.T) {
	const forbidden = `[!]mirror gears.example.com refused for 3s: gears.example.com is forbidden; next attempt within 2s`
	const notListed = `[-]mirrors failed: pods has not been listed yet`
	const denied = `[!]reviews refused for 5s: 403`
	const unused = `[!]files: what was read at 2026-11-30 00:28:06 is in use still: /tls/tls.crt: broken`
	verbose := map[string]string{
		"":        "[+]shutdown ok\n[!]upstream: old\n[!]mirror pods resuming for 1s\nreadyz check passed\n",
		unused:    "[+]shutdown ok\n" + unused + "\nreadyz check passed\n",
		denied:    "[+]shutdown ok\n" + denied + "\nreadyz check passed\n",
		forbidden: "[+]shutdown ok\n" + forbidden + "\n[+]mirror pods ok: synced for 3s\n",
		notListed: "[+]shutdown ok\n" + notListed + "\n", "200, and no list of checks": "<html>",
	}
	for want, text := range verbose {
		health := httptest.NewServer(answers{"GET /readyz": text})
		at, err := url.Parse(health.URL)
		if err != nil {
			t.Fatal(err)
		}
		a := good()
		a["GET /apis/example.com/v1beta1/gears"] = `upstream {"metadata":{"resourceVersion":"7"}}`
		server := httptest.NewServer(a)
		base, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		transport := &http.Transport{}
		c := &Checker{Server: Endpoint{"--server", base, transport, "a"}, Health: &Endpoint{Base: at, Transport: transport}}
		err = c.Run(t.Context(), []string{"pods", "gears.v1beta1.example.com"}, &out)
		line := "ok      /readyz?verbose: nothing is wrong\n"
		cause := "let it send reviews (system:auth-delegator); /readyz?verbose on its --metrics-listen says"
		if want != "" {
			line = "FAILED  /readyz?verbose: " + want
		}
		if strings.HasPrefix(want, "[") {
			cause = "/readyz?verbose, above, says why"
		}
		if err == nil || !strings.Contains(out.String(), line) || !strings.Contains(out.String(), "ok      LIST pods: ") ||
			!strings.Contains(out.String(), "FAILED  LIST gears.v1beta1.example.com: not from memory") ||
			!strings.Contains(out.String(), cause) {
			t.Errorf("%s: %v\n%s", want, err, &out)
		}
		transport.CloseIdleConnections()
		server.Close()
		health.Close()
	}
}
